#ifdef __x86_64__
#define TRIAGE_INSTRUCTIONS avx512
#include "runtime/backends/fused/tape/primitives.inc"
#endif
