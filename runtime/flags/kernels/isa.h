#pragma once
// The library is built for the plainest machine of its architecture; inner loops exist for AVX2 and AVX-512 too, chosen
// once at run time. A loop is a struct with `template <int bytes> auto run(args...) const`, always inlined, where
// `bytes` is the width of a vector; `on_this_machine(loop, args...)` runs it in the best of the builds.
#if defined(__x86_64__) && defined(__GNUC__)
#define TRIAGE_ISA_X86 1
#define TRIAGE_TARGET(isa) __attribute__((target(isa)))
#else
#define TRIAGE_TARGET(isa)
#endif
#if defined(__GNUC__)
#define TRIAGE_INLINE inline __attribute__((always_inline))
#define TRIAGE_INLINE_LAMBDA __attribute__((always_inline))
#else
#define TRIAGE_INLINE inline
#define TRIAGE_INLINE_LAMBDA
#endif

namespace triage::flags::cpu {

enum class Isa { plain, avx2, avx512 };

/// The best that this machine runs.
inline Isa machine_isa() {
#ifdef TRIAGE_ISA_X86
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return Isa::avx512;
  }
  return __builtin_cpu_supports("avx2") ? Isa::avx2 : Isa::plain;
#else
  return Isa::plain;
#endif
}

/// What loops run in. Tests lower it.
inline Isa chosen_isa = machine_isa();

template <class Loop, class... Args>
auto run_plain(const Loop& loop, Args... args) {
  return loop.template run<16>(args...);
}
#ifdef TRIAGE_ISA_X86
template <class Loop, class... Args>
TRIAGE_TARGET("avx2")
auto run_avx2(const Loop& loop, Args... args) {
  return loop.template run<32>(args...);
}
template <class Loop, class... Args>
TRIAGE_TARGET("avx512f,avx512bw,avx512dq,avx512vl")
auto run_avx512(const Loop& loop, Args... args) {
  return loop.template run<64>(args...);
}
#endif

template <class Loop, class... Args>
auto on_this_machine(const Loop& loop, Args... args) {
#ifdef TRIAGE_ISA_X86
  if (chosen_isa == Isa::avx512) return run_avx512(loop, args...);
  if (chosen_isa == Isa::avx2) return run_avx2(loop, args...);
#endif
  return run_plain(loop, args...);
}

}  // namespace triage::flags::cpu
