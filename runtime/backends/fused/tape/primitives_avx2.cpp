#ifdef __x86_64__
#define TRIAGE_INSTRUCTIONS avx2
#include "runtime/backends/fused/tape/primitives.inc"
#endif
