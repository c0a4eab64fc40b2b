// What loops on a GPU take from CUDA, in front of everything else that NVRTC compiles: it has no headers of the C++
// library.
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef unsigned long uintptr_t;
#define INT64_C(number) number##L
#define INT32_MIN (-2147483647 - 1)
#define INT64_MIN (-9223372036854775807L - 1)

namespace std {
enum class endian { little, native = little };
inline int countr_zero(uint64_t word) { return word ? __ffsll(static_cast<long long>(word)) - 1 : 64; }
inline void* memcpy(void* to, const void* from, size_t bytes) { return ::memcpy(to, from, bytes); }
inline void* memmove(void* to, const void* from, size_t bytes) {
  char* const target = static_cast<char*>(to);
  const char* const source = static_cast<const char*>(from);
  if (target < source)
    for (size_t i = 0; i < bytes; ++i) target[i] = source[i];
  else
    for (size_t i = bytes; i > 0; --i) target[i - 1] = source[i - 1];
  return to;
}
}  // namespace std

#define __builtin_memcpy memcpy
#define __builtin_memset memset
#define __builtin_prefetch(...)
#define __builtin_inff() __int_as_float(0x7F800000)
#define __builtin_inf() __longlong_as_double(0x7FF0000000000000LL)
#define __builtin_nanf(text) __int_as_float(0x7FC00000)
#define __builtin_nan(text) __longlong_as_double(0x7FF8000000000000LL)
#define __builtin_fabsf fabsf
#define __builtin_fabs fabs
#define __builtin_sqrtf sqrtf
#define __builtin_sqrt sqrt
#define __builtin_floorf floorf
#define __builtin_floor floor
#define __builtin_ceilf ceilf
#define __builtin_ceil ceil
#define __builtin_truncf truncf
#define __builtin_trunc trunc
#define __builtin_rintf rintf
#define __builtin_rint rint
#define __builtin_fmaf fmaf
#define __builtin_fma fma
#define __builtin_fmod fmod
#define __builtin_ldexp ldexp

#define TRIAGE_SHARED __shared__
#define TRIAGE_KERNEL extern "C" __global__ void __launch_bounds__(512)

namespace triage::fused {

inline constexpr int warp_threads = 32;
inline void wait_for_warp() { __syncwarp(); }
inline void wait_for_block() { __syncthreads(); }
inline uint64_t other_thread(uint64_t word, int distance) {
  return __shfl_down_sync(0xFFFFFFFFu, static_cast<unsigned long long>(word), distance);
}

/// Clusters are there from compute capability 9.0 on.
inline void wait_for_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
#endif
}
inline uint64_t shared_of(const uint64_t* word, int block) {
#if __CUDA_ARCH__ >= 900
  const uint32_t own = static_cast<uint32_t>(__cvta_generic_to_shared(word));
  uint32_t there;
  unsigned long long read;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(own), "r"(block));
  asm volatile("ld.shared::cluster.u64 %0, [%1];" : "=l"(read) : "r"(there) : "memory");
  return read;
#else
  return *word;
#endif
}

/// By way of the cache for what nobody writes.
template <class T>
inline T load(const T* address) {
  if constexpr (sizeof(T) == 1)
    return __builtin_bit_cast(T, __ldg(reinterpret_cast<const unsigned char*>(address)));
  else if constexpr (sizeof(T) == 2)
    return __builtin_bit_cast(T, __ldg(reinterpret_cast<const unsigned short*>(address)));
  else if constexpr (sizeof(T) == 4)
    return __builtin_bit_cast(T, __ldg(reinterpret_cast<const unsigned int*>(address)));
  else
    return __builtin_bit_cast(T, __ldg(reinterpret_cast<const unsigned long long*>(address)));
}

}  // namespace triage::fused
