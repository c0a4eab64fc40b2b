// The functions of generated loops against exact values: how far off they may be is stated in support/transcendental.h.
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <doctest/doctest.h>
#include <runtime/backends/fused/support/numbers.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/fused/primitives/kernel_functions.h"
#include "tests/fused/programs.h"

namespace triage::kernel_functions {

std::vector<Set> all() {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("fma")) return {rounding_twice()};
#endif
  return {rounding_twice(), rounding_once()};
}

}  // namespace triage::kernel_functions

namespace triage::fused {
namespace {

using Exact = long double;  // of 64 bits or more, but for processors where it is double
namespace sets = kernel_functions;

/// How many numbers lie between `got` and the exact value. Zeros, Infs and NaNs are right or not.
template <class T>
double ulps(T got, Exact exact) {
  const auto nearest = static_cast<T>(exact);
  if (std::isnan(exact)) return std::isnan(got) ? 0 : 1e9;
  if (std::isinf(nearest) || std::isinf(got)) return nearest == got ? 0 : 1e9;
  if (exact == 0 && got == 0) return std::signbit(exact) == std::signbit(got) ? 0 : 1e9;
  const T magnitude = std::max(std::fabs(nearest), std::numeric_limits<T>::min());
  const T above = std::nextafter(magnitude, std::numeric_limits<T>::infinity());
  return static_cast<double>(std::fabs(static_cast<Exact>(got) - exact) / (static_cast<Exact>(above) - magnitude));
}

Exact exact(const std::string& name, Exact x) {
  if (name == "exp") return std::exp(x);
  if (name == "exp2") return std::exp2(x);
  if (name == "expm1") return std::expm1(x);
  if (name == "log") return std::log(x);
  if (name == "log2") return std::log2(x);
  if (name == "log10") return std::log10(x);
  if (name == "log1p") return std::log1p(x);
  if (name == "erf") return std::erf(x);
  if (name == "tanh") return std::tanh(x);
  if (name == "sigmoid") return 1 / (1 + std::exp(-x));
  if (name == "sinh") return std::sinh(x);
  if (name == "cosh") return std::cosh(x);
  if (name == "asin") return std::asin(x);
  if (name == "acos") return std::acos(x);
  return std::atan(x);
}

template <class T>
struct Worst {
  double ulps = 0;
  T at = 0;
};

template <class T>
Worst<T> worst(const std::string& name, T (*function)(T), const std::vector<T>& arguments) {
  Worst<T> found;
  for (const T x : arguments) {
    const double off = ulps(function(x), exact(name, x));
    if (off > found.ulps) found = {off, x};
  }
  return found;
}

/// Numbers of every size and both signs, numbers in the ranges where functions bend, and the ends of both.
template <class T, class Bits>
std::vector<T> arguments() {
  std::mt19937_64 random(1);
  std::vector<T> list{
      0,    -T(0), 1,       -1,    2,      10,       100,        T(0.5),    T(-0.5),       T(inf), -T(inf), T(nan),
      88.7, 88.8,  89.4160, 89.42, -103.9, -104.1,   -745.1,     -745.2,    709.78,        709.79, 710.475, 710.476,
      128,  1024,  127.99,  -149,  -150.1, T(-1074), T(-1075.1), T(1023.9), T(0.41421356), T(5.9), T(9.1),  T(19.1)};
  for (const T end :
       {std::numeric_limits<T>::denorm_min(), std::numeric_limits<T>::min(), std::numeric_limits<T>::max()})
    for (const T sign : {1, -1}) list.push_back(sign * end);
  for (int i = 0; i < 60000; ++i) list.push_back(bits_as<T>(static_cast<Bits>(random())));
  for (const double range : {1.0, 2.0, 6.0, 30.0, 150.0, 1100.0})
    for (int i = 0; i < 15000; ++i)
      list.push_back(static_cast<T>(std::uniform_real_distribution<double>(-range, range)(random)));
  for (int i = 0; i < 30000; ++i)
    list.push_back(1 + static_cast<T>(std::uniform_real_distribution<double>(-0.5, 0.5)(random)));
  return list;
}

const std::vector<float>& special_pairs() {
  static const std::vector<float> list{0.0f,         -0.0f,
                                       inf,          -inf,
                                       nan,          1,
                                       -1,           1e-45f,
                                       -1e-45f,      3.4028235e38f,
                                       -3e38f,       0.5f,
                                       -0.5f,        2,
                                       -2,           3,
                                       -3,           10,
                                       100,          0.99999994f,
                                       -0.99999994f, 1.0000001f,
                                       16777216.0f,  16777215.0f,
                                       -16777215.0f, 33554432.0f,
                                       8388607.5f,   0.1f,
                                       1.5f};
  return list;
}

/// Calls visit(x, y) for special numbers, for any, and for such as are not far apart.
template <class Visit>
void pairs(Visit visit) {
  for (const float x : special_pairs())
    for (const float y : special_pairs()) visit(x, y);
  std::mt19937_64 random(2);
  std::uniform_real_distribution<float> power(-30, 30), part(-1, 1);
  for (int i = 0; i < 100000; ++i) {
    visit(bits_as<float>(static_cast<uint32_t>(random())), bits_as<float>(static_cast<uint32_t>(random())));
    const float x = std::exp2(power(random)) * part(random), y = power(random) * part(random);
    visit(x, y);
    visit(x, std::rint(y));
    visit(std::rint(x) * y, y);  // a multiple, or nearly
    visit(std::nextafter(std::rint(x) * y, 0.0f), y);
  }
}

}  // namespace

TEST_CASE("functions of floats and doubles are within their bounds, with and without fused multiply-add") {
  const auto floats = arguments<float, uint32_t>();
  const auto doubles = arguments<double, uint64_t>();
  for (const sets::Set& set : sets::all())
    for (int i = 0; i < set.count_of_one; ++i) {
      const sets::OfOne& one = set.of_one[i];
      const auto single = worst<float>(one.name, one.single, floats);
      CHECK_MESSAGE(single.ulps <= one.ulps,
                    one.name << " is off by " << single.ulps << " ulp at " << single.at << ", " << set.name);
      if (std::numeric_limits<Exact>::digits < 64) continue;
      const auto wide = worst<double>(one.name, one.wide, doubles);
      CHECK_MESSAGE(wide.ulps <= one.ulps,
                    one.name << " of doubles is off by " << wide.ulps << " ulp at " << wide.at << ", " << set.name);
    }
}

TEST_CASE("exp, log and their kind are exact where that is expected") {
  for (const sets::Set& set : sets::all())
    for (int i = 0; i < set.count_of_one; ++i) {
      const sets::OfOne& one = set.of_one[i];
      const std::string name = one.name;
      if (name == "exp" || name == "exp2" || name == "cosh") {
        CHECK(one.single(0.0f) == 1.0f);
        CHECK(one.wide(-0.0) == 1.0);
      }
      for (int n = -149; n <= 127; ++n) {
        if (name == "exp2") CHECK(one.single(static_cast<float>(n)) == std::exp2(static_cast<float>(n)));
        if (name == "exp2") CHECK(one.wide(8.0 * n) == std::exp2(8.0 * n));
        if (name == "log2") CHECK(one.single(std::exp2(static_cast<float>(n))) == static_cast<float>(n));
        if (name == "log2") CHECK(one.wide(std::exp2(7.0 * n)) == 7.0 * n);
      }
      if (name == "log" || name == "log2" || name == "log10") CHECK(one.wide(1.0) == 0.0);
      if (name == "tanh" || name == "erf") CHECK(one.wide(40.0) == 1.0);
    }
}

TEST_CASE("pow and atan2 of floats are within 1 ulp, and have C's special cases") {
  for (const sets::Set& set : sets::all())
    for (const bool power : {true, false}) {
      double most = 0;
      float x_of_most = 0, y_of_most = 0;
      const sets::OfTwo& function = power ? set.power : set.arc_tangent_of_point;
      pairs([&](float x, float y) {
        const Exact right = power ? std::pow(static_cast<Exact>(x), static_cast<Exact>(y))
                                  : std::atan2(static_cast<Exact>(x), static_cast<Exact>(y));
        const double off = ulps(function.single(x, y), right);
        if (off > most) most = off, x_of_most = x, y_of_most = y;
      });
      CHECK_MESSAGE(most <= 1, function.name << " is off by " << most << " ulp at " << x_of_most << ", " << y_of_most
                                             << ", " << set.name);
    }
}

TEST_CASE("fmod and remainder of floats are exact, whatever the quotient") {
  for (const sets::Set& set : sets::all()) {
    int wrong = 0;
    const auto differ = [](float got, float expected) {
      return std::isnan(expected) ? !std::isnan(got) : bits_as<uint32_t>(got) != bits_as<uint32_t>(expected);
    };
    pairs([&](float x, float y) {
      const float left = std::fmod(x, y), turned = left != 0 && (y < 0) != (left < 0) ? left + y : left;
      const bool bad = differ(set.left_over.single(x, y), left) || differ(set.remainder_of.single(x, y), turned);
      if (bad && wrong++ < 5) CHECK_MESSAGE(!bad, "fmod or remainder of " << x << " by " << y << ", " << set.name);
    });
    CHECK(wrong == 0);
  }
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

}  // namespace triage::fused
