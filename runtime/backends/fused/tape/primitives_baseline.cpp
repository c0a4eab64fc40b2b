#define TRIAGE_INSTRUCTIONS baseline
#include "runtime/backends/fused/tape/primitives.inc"
