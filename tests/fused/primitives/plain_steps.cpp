// The steps of tapes as processors get them for which there are no vector instructions: without pragmas, and the code
// of the runtime includes no header of intrinsics.
#define TRIAGE_INSTRUCTIONS plain
#include "runtime/backends/fused/tape/primitives.inc"

#if defined(_IMMINTRIN_H_INCLUDED) || defined(_EMMINTRIN_H_INCLUDED) || defined(__ARM_NEON_H)
#error "the steps of tapes include a header of intrinsics"
#endif
