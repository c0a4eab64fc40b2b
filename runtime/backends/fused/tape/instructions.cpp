#include "runtime/backends/fused/tape/primitives.h"

namespace triage::fused {

namespace baseline {
extern const Primitives steps;
}
namespace avx2 {
extern const Primitives steps;
}
namespace avx512 {
extern const Primitives steps;
}

const Primitives& primitives() {
#ifdef __x86_64__
  static const Primitives& best = [&]() -> const Primitives& {
    const auto has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
      return avx512::steps;
    return has_avx2 ? avx2::steps : baseline::steps;
  }();
  return best;
#else
  return baseline::steps;
#endif
}

}  // namespace triage::fused
