// The functions of generated loops against exact values: how far off they may be is stated in support/transcendental.h.
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <doctest/doctest.h>
#include <runtime/backends/fused/support/numbers.h>
#include <runtime/backends/fused/support/transcendental.h>

#include <cmath>
#include <limits>
#include <string>

namespace triage::fused {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

/// How many floats lie between `got` and the exact value, rounded up.
double ulps(float got, double exact) {
  const auto nearest = static_cast<float>(exact);
  if (std::isnan(exact)) return std::isnan(got) ? 0 : 1e9;
  if (std::isinf(nearest) || std::isinf(got)) return nearest == got ? 0 : 1e9;
  const float magnitude = std::max(std::fabs(nearest), std::numeric_limits<float>::min());
  return std::fabs(static_cast<double>(got) - exact) / (std::nextafter(magnitude, inf) - magnitude);
}

struct Worst {
  double ulps = 0;
  float at = 0;
};

/// Over floats of every size, `step` patterns apart, both signs.
template <typename F, typename Exact>
Worst worst(F function, Exact exact, uint32_t step) {
  Worst found;
  for (uint64_t bits = 0; bits <= 0xFFFFFFFFu; bits += step) {
    const float x = bits_as<float>(static_cast<uint32_t>(bits));
    const double off = ulps(function(x), exact(static_cast<double>(x)));
    if (off > found.ulps) found = {off, x};
  }
  return found;
}

double exact_sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

TEST_CASE("exp, log, tanh, sigmoid, expm1, log1p and erf are within their bounds") {
  constexpr uint32_t step = 1009;
  const auto within = [](const char* name, Worst found, double bound) {
    CHECK_MESSAGE(found.ulps <= bound, name << " is off by " << found.ulps << " ulp at " << found.at);
  };
  within("exp", worst([](float x) { return exponential(x); }, [](double x) { return std::exp(x); }, step), 2);
  within("log", worst([](float x) { return logarithm(x); }, [](double x) { return std::log(x); }, step), 2);
  within("tanh", worst([](float x) { return hyperbolic_tangent(x); }, [](double x) { return std::tanh(x); }, step), 3);
  within("sigmoid", worst([](float x) { return sigmoid(x); }, exact_sigmoid, step), 3);
  within("expm1", worst([](float x) { return exponential_minus_one(x); }, [](double x) { return std::expm1(x); }, step),
         2);
  within("log1p", worst([](float x) { return logarithm_of_one_plus(x); }, [](double x) { return std::log1p(x); }, step),
         2);
  within("erf", worst([](float x) { return error_function(x); }, [](double x) { return std::erf(x); }, step), 2);
}

TEST_CASE("exp, log and tanh at the ends") {
  CHECK(exponential(inf) == inf);
  CHECK(exponential(-inf) == 0.0f);
  CHECK(std::isnan(exponential(nan)));
  CHECK(exponential(0.0f) == 1.0f);
  CHECK(exponential(89.0f) == inf);
  CHECK(logarithm(0.0f) == -inf);
  CHECK(logarithm(-0.0f) == -inf);
  CHECK(logarithm(1.0f) == 0.0f);
  CHECK(logarithm(inf) == inf);
  CHECK(std::isnan(logarithm(-1.0f)));
  CHECK(std::isnan(logarithm(nan)));
  CHECK(hyperbolic_tangent(inf) == 1.0f);
  CHECK(hyperbolic_tangent(-inf) == -1.0f);
  CHECK(std::isnan(hyperbolic_tangent(nan)));
  CHECK(std::signbit(hyperbolic_tangent(-0.0f)));
  CHECK(exponential_minus_one(inf) == inf);
  CHECK(exponential_minus_one(-inf) == -1.0f);
  CHECK(std::isnan(exponential_minus_one(nan)));
  CHECK(std::signbit(exponential_minus_one(-0.0f)));
  CHECK(logarithm_of_one_plus(-1.0f) == -inf);
  CHECK(logarithm_of_one_plus(inf) == inf);
  CHECK(std::isnan(logarithm_of_one_plus(-2.0f)));
  CHECK(std::isnan(logarithm_of_one_plus(nan)));
  CHECK(std::signbit(logarithm_of_one_plus(-0.0f)));
  CHECK(error_function(inf) == 1.0f);
  CHECK(error_function(-inf) == -1.0f);
  CHECK(std::isnan(error_function(nan)));
  CHECK(std::signbit(error_function(-0.0f)));
}

TEST_CASE("half precision is read and rounded as c10 does, every pattern") {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const auto pattern = static_cast<uint16_t>(bits);
    const float wide = widen(half{pattern}), expected = c10::Half(pattern, c10::Half::from_bits());
    REQUIRE((std::isnan(expected) ? std::isnan(wide) : bits_as<uint32_t>(wide) == bits_as<uint32_t>(expected)));
    const float wide_b = widen(bfloat16{pattern}), expected_b = c10::BFloat16(pattern, c10::BFloat16::from_bits());
    REQUIRE((std::isnan(expected_b) ? std::isnan(wide_b) : bits_as<uint32_t>(wide_b) == bits_as<uint32_t>(expected_b)));
  }
  for (uint64_t bits = 0; bits <= 0xFFFFFFFFu; bits += 4999) {
    const float x = bits_as<float>(static_cast<uint32_t>(bits));
    if (std::isnan(x)) continue;
    REQUIRE(to_half(x).bits == c10::Half(x).x);
    REQUIRE(to_bfloat16(x).bits == c10::BFloat16(x).x);
  }
  CHECK(std::isnan(as_half(nan)));
  CHECK(std::isnan(as_bfloat16(nan)));
}

TEST_CASE("the largest and smallest whole numbers") {
  CHECK(lowest_of<int64_t>(true) == std::numeric_limits<int64_t>::min());
  CHECK(lowest_of<int64_t>(false) == std::numeric_limits<int64_t>::max());
  CHECK(lowest_of<int8_t>(true) == -128);
  CHECK(lowest_of<int8_t>(false) == 127);
  CHECK(lowest_of<uint8_t>(true) == 0);
  CHECK(lowest_of<uint8_t>(false) == 255);
}

}  // namespace triage::fused
