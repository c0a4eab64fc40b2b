// The table of one set, for a file that is compiled for it: NAME is the set's, and the namespace is its own.
#define fused NAME
#include <runtime/backends/fused/support/divisions.h>
#include <runtime/backends/fused/support/transcendental.h>

#include "tests/fused/primitives/kernel_functions.h"

namespace triage::kernel_functions {

namespace {

#define OF_ONE(name, function, ulps)                                                                  \
  {                                                                                                   \
    name, [](float x) { return NAME::function(x); }, [](double x) { return NAME::function(x); }, ulps \
  }
#define OF_TWO(name, function)                                  \
  {                                                             \
    name, [](float x, float y) { return NAME::function(x, y); } \
  }

constexpr OfOne of_one[] = {
    OF_ONE("exp", exponential, 2),
    OF_ONE("exp2", exponential_of_two, 2),
    OF_ONE("expm1", exponential_minus_one, 2),
    OF_ONE("log", logarithm, 2),
    OF_ONE("log2", logarithm_of_base_two, 2),
    OF_ONE("log10", logarithm_of_base_ten, 2),
    OF_ONE("log1p", logarithm_of_one_plus, 2),
    OF_ONE("erf", error_function, 2),
    OF_ONE("tanh", hyperbolic_tangent, 3),
    OF_ONE("sigmoid", sigmoid, 3),
    OF_ONE("sinh", hyperbolic_sine, 3),
    OF_ONE("cosh", hyperbolic_cosine, 2),
    OF_ONE("asin", arc_sine, 3),
    OF_ONE("acos", arc_cosine, 2),
    OF_ONE("atan", arc_tangent, 2),
};

}  // namespace

const Set& NAME() {
  static const Set set{NAME::rounds_once ? "one rounding" : "two roundings",
                       of_one,
                       sizeof(of_one) / sizeof(*of_one),
                       OF_TWO("pow", power),
                       OF_TWO("atan2", arc_tangent_of_point),
                       OF_TWO("fmod", left_over),
                       OF_TWO("remainder", remainder_of)};
  return set;
}

}  // namespace triage::kernel_functions
