// Operators one by one, on numbers of every size and those that are none, against ATen: with its bits where both do the
// same IEEE operations, near elsewhere.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/graph.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/fused/programs.h"

namespace triage::fused {
namespace {

struct Operator {
  const char* name;
  std::function<at::Tensor(const at::Tensor& x, const at::Tensor& y)> run;
};
using Operators = std::vector<Operator>;

/// Numbers that are none, zeros of both signs, subnormal ones, halves, the ends of ranges, and many between.
std::vector<double> numbers() {
  std::vector<double> list{NAN,  INFINITY, -INFINITY, 0.0,   -0.0,  5e-324, -5e-324, 1e-45, -1e-45, 1e-39,    -1e-39,
                           6e-8, -6e-8,    1e30,      -1e30, 1e300, -1e300, 3.0,     -3.0,  6.0,    8388607.5};
  for (int i = -16; i <= 16; ++i) list.push_back(i * 0.5);
  for (int i = -60; i < 60; ++i) list.push_back(i * 0.3390851 + 0.01);
  for (const double large : {88.0, 89.5, 104.0, 1000.5, 65504.0, 8388608.5, 2147483648.0, 9.3e18})
    for (const double sign : {1.0, -1.0}) list.push_back(sign * large);
  return list;
}

/// (n, width), `shift` numbers further on in the list.
at::Tensor rows(int64_t n, at::ScalarType dtype, int64_t shift = 0, int64_t width = 61) {
  static const std::vector<double> list = numbers();
  const auto length = static_cast<int64_t>(list.size());
  at::Tensor x = at::empty({n, width}, at::kDouble);
  for (int64_t i = 0; i < x.numel(); ++i) x.data_ptr<double>()[i] = list[static_cast<size_t>((i * 7 + shift) % length)];
  return x.to(dtype);
}

/// The same bits, of zeros too; NaN is NaN.
bool same_numbers(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  if (!a.is_floating_point()) return a.equal(b);
  const at::Tensor both_nan = a.isnan() & b.isnan();
  return (both_nan | (a.eq(b) & at::signbit(a).eq(at::signbit(b)))).all().item<bool>();
}

/// With infinities in the same places, or both beyond what the dtype holds comfortably.
bool near(const at::Tensor& expected, const at::Tensor& got, at::ScalarType dtype) {
  const double epsilon = dtype == at::kBFloat16 ? 0x1p-7 : dtype == at::kHalf ? 0x1p-10 : 2e-6;
  return at::allclose(got.to(at::kDouble), expected.to(at::kDouble), epsilon, epsilon, /*equal_nan=*/true);
}

/// Those that this ATen has for the dtype.
Operators known(const Operators& all, at::ScalarType dtype) {
  Operators found;
  for (const Operator& one : all) {
    try {
      one.run(rows(2, dtype), rows(2, dtype, 3));
      found.push_back(one);
    } catch (const c10::Error&) {
    }
  }
  return found;
}

/// Of two zeros, ATen's clamps on ARM give either, by where an element lies.
at::Tensor comparable(const at::Tensor& numbers) {
#ifdef __aarch64__
  if (at::isFloatingType(numbers.scalar_type())) return numbers + 0;
#endif
  return numbers;
}

void operators_agree(const Operators& all, at::ScalarType dtype, bool exact) {
  const Operators operators = known(all, dtype);
  CHECK(operators.size() * 2 >= all.size());
  const Program program = [&](const Tensors& in) {
    Tensors results;
    for (const Operator& one : operators) results.push_back(one.run(in[0] * 1, in[1]));  // no loop of one operator
    return results;
  };
  const auto inputs = [&](int64_t n) { return Tensors{rows(n, dtype), rows(n, dtype, 3)}; };
  for (const Operator& one : operators)
    CHECK_MESSAGE(
        shares([&](const Tensors& in) { return Tensors{one.run(in[0] * 1, in[1]).neg()}; }, inputs(5)).second == 0,
        std::string(one.name) << " of " << dtype << " is left to ATen");
  const auto fused = compiled(program, inputs(5));
  const auto check = [&](const Tensors& given) {
    const Tensors expected = program(given), got = run_in_loops(*fused, given);
    REQUIRE(got.size() == operators.size());
    for (size_t i = 0; i < got.size(); ++i) {
      const bool good =
          exact ? same_numbers(comparable(expected[i]), comparable(got[i])) : near(expected[i], got[i], dtype);
      if (good) continue;
      const at::Tensor off = expected[i].ne(got[i]) & ~(expected[i].ne(expected[i]) & got[i].ne(got[i]));
      const at::Tensor where = off.any().item<bool>() ? off : at::signbit(expected[i]).ne(at::signbit(got[i]));
      FAIL_CHECK(std::string(operators[i].name) << " of " << dtype << ", " << given[0].sizes() << ": of "
                                                << given[0].masked_select(where)[0].item<double>() << " and "
                                                << given[1].masked_select(where)[0].item<double>() << " ATen makes "
                                                << expected[i].masked_select(where)[0].item<double>() << ", the loop "
                                                << got[i].masked_select(where)[0].item<double>());
    }
  };
  for (const int64_t n : {0, 1, 2, 31, 32, 33}) check(inputs(n));
  const at::Tensor wide = rows(8, dtype, 1, 122), long_ = rows(61, dtype, 2, 8);
  check({wide.slice(1, 0, 122, 2), long_.t()});
  check({long_.t(), wide.slice(1, 61)});
}

const Operators rounding = {
    {"floor", [](const at::Tensor& x, const at::Tensor&) { return x.floor(); }},
    {"ceil", [](const at::Tensor& x, const at::Tensor&) { return x.ceil(); }},
    {"trunc", [](const at::Tensor& x, const at::Tensor&) { return x.trunc(); }},
    {"round", [](const at::Tensor& x, const at::Tensor&) { return x.round(); }},
    {"frac", [](const at::Tensor& x, const at::Tensor&) { return x.frac(); }},
};

/// Without the ends of the line of hardswish, and NaN, which ATen's vectors treat otherwise than what is left over
/// behind them.
at::Tensor between_ends(const at::Tensor& x) { return at::nan_to_num(at::where(x.abs() == 3, x * 0.5, x)); }

const Operators piecewise = {
    {"leaky_relu", [](const at::Tensor& x, const at::Tensor&) { return at::leaky_relu(x, 0.125); }},
    {"relu6", [](const at::Tensor& x, const at::Tensor&) { return at::relu6(x); }},
    {"hardtanh", [](const at::Tensor& x, const at::Tensor&) { return at::hardtanh(x, -0.5, 2); }},
    {"hardswish", [](const at::Tensor& x, const at::Tensor&) { return at::hardswish(x); }},
    {"hardsigmoid", [](const at::Tensor& x, const at::Tensor&) { return at::hardsigmoid(x); }},
    {"threshold", [](const at::Tensor& x, const at::Tensor&) { return at::threshold(x, 0.5, -2); }},
    {"leaky_relu_backward",
     [](const at::Tensor& x, const at::Tensor& g) { return at::leaky_relu_backward(g, x, 0.125, false); }},
    {"hardtanh_backward",
     [](const at::Tensor& x, const at::Tensor& g) { return at::hardtanh_backward(g, at::nan_to_num(x), -0.5, 2); }},
    {"hardswish_backward",
     [](const at::Tensor& x, const at::Tensor& g) { return at::hardswish_backward(g, between_ends(x)); }},
    {"hardsigmoid_backward", [](const at::Tensor& x, const at::Tensor& g) { return at::hardsigmoid_backward(g, x); }},
};

const Operators powers = {
    {"deg2rad", [](const at::Tensor& x, const at::Tensor&) { return at::deg2rad(x); }},
    {"rad2deg", [](const at::Tensor& x, const at::Tensor&) { return at::rad2deg(x); }},
    {"pow 0", [](const at::Tensor& x, const at::Tensor&) { return x.pow(0); }},
    {"pow 1", [](const at::Tensor& x, const at::Tensor&) { return x.pow(1); }},
    {"pow 2", [](const at::Tensor& x, const at::Tensor&) { return x.pow(2); }},
    {"pow 3", [](const at::Tensor& x, const at::Tensor&) { return x.pow(3); }},
    {"pow -1", [](const at::Tensor& x, const at::Tensor&) { return x.pow(-1.0); }},
    {"pow -2", [](const at::Tensor& x, const at::Tensor&) { return x.pow(-2.0); }},
};

const Operators divisions_of_reals = {
    {"floor_divide", [](const at::Tensor& x, const at::Tensor& y) { return x.floor_divide(y); }},
    {"floor_divide by a number", [](const at::Tensor& x, const at::Tensor&) { return x.floor_divide(-0.7); }},
    {"div, floor", [](const at::Tensor& x, const at::Tensor& y) { return x.div(y, "floor"); }},
    {"div, trunc", [](const at::Tensor& x, const at::Tensor& y) { return x.div(y, "trunc"); }},
    {"remainder", [](const at::Tensor& x, const at::Tensor& y) { return x.remainder(y); }},
    {"remainder of a number", [](const at::Tensor& x, const at::Tensor&) { return x.remainder(-2.5); }},
    {"fmod", [](const at::Tensor& x, const at::Tensor& y) { return x.fmod(y); }},
    {"fmod of a number", [](const at::Tensor& x, const at::Tensor&) { return x.fmod(1.5); }},
};

const Operators divisions_of_whole_numbers = {
    {"floor_divide", [](const at::Tensor& x, const at::Tensor&) { return x.floor_divide(7); }},
    {"floor_divide, negative", [](const at::Tensor& x, const at::Tensor&) { return x.floor_divide(-3); }},
    {"div, floor", [](const at::Tensor& x, const at::Tensor&) { return x.div(5, "floor"); }},
    {"div, trunc", [](const at::Tensor& x, const at::Tensor&) { return x.div(-5, "trunc"); }},
    {"remainder", [](const at::Tensor& x, const at::Tensor&) { return x.remainder(7); }},
    {"remainder, negative", [](const at::Tensor& x, const at::Tensor&) { return x.remainder(-7); }},
    {"fmod", [](const at::Tensor& x, const at::Tensor&) { return x.fmod(-7); }},
    {"floor", [](const at::Tensor& x, const at::Tensor&) { return x.floor(); }},
    {"ceil", [](const at::Tensor& x, const at::Tensor&) { return x.ceil(); }},
    {"trunc", [](const at::Tensor& x, const at::Tensor&) { return x.trunc(); }},
    {"round", [](const at::Tensor& x, const at::Tensor&) { return x.round(); }},
    {"pow 2", [](const at::Tensor& x, const at::Tensor&) { return x.pow(2); }},
    {"relu6", [](const at::Tensor& x, const at::Tensor&) { return at::relu6(x); }},
    {"threshold", [](const at::Tensor& x, const at::Tensor&) { return at::threshold(x, 3, -2); }},
};

const Operators smooth = {
    {"silu", [](const at::Tensor& x, const at::Tensor&) { return at::silu(x); }},
    // Of Inf, LibTorch 2 makes NaN where memory is dense, and Inf elsewhere.
    {"gelu", [](const at::Tensor& x, const at::Tensor&) { return at::gelu(x.clamp(-1000, 1000)); }},
    {"gelu by tanh", [](const at::Tensor& x, const at::Tensor&) { return at::gelu(x, "tanh"); }},
    {"elu", [](const at::Tensor& x, const at::Tensor&) { return at::elu(x, 0.75); }},
    {"selu", [](const at::Tensor& x, const at::Tensor&) { return at::elu(x, 1.75, 1.125, 0.5); }},
    {"softplus", [](const at::Tensor& x, const at::Tensor&) { return at::softplus(x); }},
    {"softplus, steep", [](const at::Tensor& x, const at::Tensor&) { return at::softplus(x, 2, 8); }},
    {"expm1", [](const at::Tensor& x, const at::Tensor&) { return x.expm1(); }},
    {"log1p", [](const at::Tensor& x, const at::Tensor&) { return x.log1p(); }},
    {"erf", [](const at::Tensor& x, const at::Tensor&) { return x.erf(); }},
};

const Operators functions = {
    {"exp", [](const at::Tensor& x, const at::Tensor&) { return x.exp(); }},
    {"log", [](const at::Tensor& x, const at::Tensor&) { return x.log(); }},
    {"tanh", [](const at::Tensor& x, const at::Tensor&) { return x.tanh(); }},
    {"sigmoid", [](const at::Tensor& x, const at::Tensor&) { return x.sigmoid(); }},
    {"exp2", [](const at::Tensor& x, const at::Tensor&) { return x.exp2(); }},
    {"log2", [](const at::Tensor& x, const at::Tensor&) { return x.log2(); }},
    {"log10", [](const at::Tensor& x, const at::Tensor&) { return x.log10(); }},
    {"sinh", [](const at::Tensor& x, const at::Tensor&) { return x.sinh(); }},
    {"cosh", [](const at::Tensor& x, const at::Tensor&) { return x.cosh(); }},
    {"asin", [](const at::Tensor& x, const at::Tensor&) { return (x * 0.0625).asin(); }},
    {"acos", [](const at::Tensor& x, const at::Tensor&) { return (x * 0.0625).acos(); }},
    {"atan", [](const at::Tensor& x, const at::Tensor&) { return x.atan(); }},
};

const Operators functions_of_two = {
    {"atan2", [](const at::Tensor& x, const at::Tensor& y) { return at::atan2(x, y); }},
    {"pow", [](const at::Tensor& x, const at::Tensor& y) { return x.pow(y); }},
    {"pow 2.5", [](const at::Tensor& x, const at::Tensor&) { return x.pow(2.5); }},
    {"pow 5", [](const at::Tensor& x, const at::Tensor&) { return x.pow(5); }},
    {"pow -3", [](const at::Tensor& x, const at::Tensor&) { return x.pow(-3); }},
    {"2 ^ x", [](const at::Tensor& x, const at::Tensor&) { return at::pow(2, x); }},
};

const Operators near_powers = {
    // LibTorch 2 does not round square roots to the nearest
    {"pow 0.5", [](const at::Tensor& x, const at::Tensor&) { return x.pow(0.5); }},
    {"pow -0.5", [](const at::Tensor& x, const at::Tensor&) { return x.abs().pow(-0.5); }},
    {"pow 4", [](const at::Tensor& x, const at::Tensor&) { return x.clamp(-30, 30).pow(4); }},
};

/// In half precision some versions of ATen round in between, one of them only where the processor is not one that
/// oneDNN computes bfloat16 on: theirs are not in loops.
const Operators derivatives_of_some_versions = {
    {"gelu_backward",  // dense: LibTorch 1.13 mixes up the elements of operands of unlike strides
     [](const at::Tensor& x, const at::Tensor& g) {
       return at::gelu_backward(g.clamp(-9, 9).contiguous(), x.clamp(-30, 30).contiguous());
     }},
    {"silu_backward", [](const at::Tensor& x, const at::Tensor& g) { return at::silu_backward(g.clamp(-9, 9), x); }},
    {"gelu_backward by tanh",  // below -2 what is left of 1 + tanh is what tanh was rounded to
     [](const at::Tensor& x, const at::Tensor& g) {
       return at::gelu_backward(g.clamp(-9, 9).contiguous(), x.clamp(-2, 30).contiguous(), "tanh");
     }},
};

const Operators derivatives = {
    {"elu_backward",
     [](const at::Tensor& x, const at::Tensor& g) {
       return at::elu_backward(g.clamp(-9, 9), 1.75, 1.125, 0.5, false, at::nan_to_num(x, 0.25));
     }},
    {"softplus_backward",
     [](const at::Tensor& x, const at::Tensor& g) { return at::softplus_backward(g.clamp(-9, 9), x, 2, 8); }},
};

}  // namespace

TEST_CASE("T34: rounding, piecewise activations and powers have ATen's bits") {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    operators_agree(rounding, dtype, true);
    operators_agree(piecewise, dtype, true);
    operators_agree(powers, dtype, true);
    operators_agree(divisions_of_reals, dtype, true);
  }
}

TEST_CASE("T34: rounding and piecewise activations of halves have ATen's bits") {
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    if (!known(rounding, dtype).empty()) operators_agree(known(rounding, dtype), dtype, true);
    if (!known(piecewise, dtype).empty()) operators_agree(known(piecewise, dtype), dtype, true);
  }
}

TEST_CASE("T34: whole numbers divided by constants, rounded and squared") {
  for (const auto dtype : {at::kLong, at::kInt}) operators_agree(divisions_of_whole_numbers, dtype, true);
}

TEST_CASE("T34: clamp to limits that are tensors, numbers of the caller or values for each element, has ATen's bits") {
  const Program clamps = [](const Tensors& in) {
    const at::Tensor x = in[0] * 1, low = in[1], high = in[2], y = in[3];
    return Tensors{x.clamp(low, high), at::clip(x, low, high), x.clamp(low),      at::clamp(x, c10::nullopt, high),
                   x.clamp_min(low),   x.clamp_max(high),      x.clamp(y, y + 1), x.clamp(low, y)};
  };
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kLong}) {
    const auto number = [](double value) { return at::full({}, value, at::kDouble); };
    const auto inputs = [&](int64_t n, double low, double high) {
      return Tensors{rows(n, dtype), number(low).to(dtype), number(high).to(dtype), rows(n, dtype, 3)};
    };
    CHECK(shares(clamps, inputs(5, -2, 3)).second == 0);
    const auto fused = compiled(clamps, inputs(5, -2, 3));
    for (const int64_t n : {0, 1, 2, 31, 32, 33})
      for (const auto& bounds : std::vector<std::pair<double, double>>{{-2, 3}, {3, -2}, {NAN, 2}, {-2, NAN}}) {
        const double low = bounds.first, high = bounds.second;
        if (!at::isFloatingType(dtype) && !(low == low && high == high)) continue;
        const Tensors given = inputs(n, low, high), expected = clamps(given), got = run_in_loops(*fused, given);
        for (size_t i = 0; i < got.size(); ++i)
          CHECK_MESSAGE(same_numbers(expected[i] + 0, got[i] + 0),  // of equal zeros either may be chosen
                        "result " << i << " of " << dtype << ", " << n << " rows, from " << low << " to " << high);
      }
  }
}

TEST_CASE("T34: clamp to numbers of the script that are NaN, one bound or both") {
  const Program clamps = [](const Tensors& in) {
    const at::Tensor x = in[0] * 1;
    return Tensors{x.clamp(nan),     at::clamp(x, c10::nullopt, nan),
                   x.clamp(nan, 1),  x.clamp(-1, nan),
                   x.clamp_min(nan), x.clamp_max(nan),
                   x.clamp(-0.5),    at::clamp(x, c10::nullopt, 0.5)};
  };
#ifdef __aarch64__
  const std::vector<at::ScalarType> dtypes{at::kDouble,
                                           at::kBFloat16};  // of float, ATen's results go by the place in memory
#else
  const std::vector<at::ScalarType> dtypes{at::kFloat, at::kDouble, at::kBFloat16};
#endif
  for (const auto dtype : dtypes) {
    CHECK(shares(clamps, {rows(5, dtype)}).second == 0);
    const auto fused = compiled(clamps, {rows(5, dtype)});
    for (const int64_t n : {0, 1, 2, 31, 32, 33}) {
      const Tensors expected = clamps({rows(n, dtype)}), got = run_in_loops(*fused, {rows(n, dtype)});
      for (size_t i = 0; i < got.size(); ++i)
        CHECK_MESSAGE(same_numbers(expected[i], got[i]), "result " << i << " of " << dtype << ", " << n << " rows");
    }
  }
}

TEST_CASE("what ATen may raise for, or what traps, is left to it") {
  const Tensors given{at::arange(8).view({2, 4}), at::ones({2, 4}, at::kLong)};
  CHECK(shares([](const Tensors& in) { return Tensors{in[0].floor_divide(in[1]) + 1}; }, given).second > 0);
  CHECK(shares([](const Tensors& in) { return Tensors{in[0].floor_divide(-1) + 1}; }, given).second > 0);
  CHECK(shares([](const Tensors& in) { return Tensors{in[0].remainder(int64_t{1} << 40) + 1}; }, given).second > 0);
}

TEST_CASE("T34: silu, gelu, elu, softplus, their derivatives and some powers are near") {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    operators_agree(smooth, dtype, false);
    operators_agree(derivatives, dtype, false);
    operators_agree(derivatives_of_some_versions, dtype, false);
    operators_agree(near_powers, dtype, false);
  }
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    if (!known(derivatives, dtype).empty()) operators_agree(known(derivatives, dtype), dtype, false);
    for (const auto* list : {&smooth, &derivatives_of_some_versions})
      for (const Operator& one : known(*list, dtype)) {
        const Program program = [&](const Tensors& in) { return Tensors{one.run(in[0], in[1])}; };
        const Tensors given{rows(5, dtype), rows(5, dtype, 3)};
        const Tensors expected = program(given), got = run(*compiled(program, given), given);
        if (shares(program, given).second == 0)
          operators_agree({one}, dtype, false);
        else
          CHECK_MESSAGE(same_numbers(expected[0], got[0]), std::string(one.name) << " of " << dtype);
        CHECK(near(expected[0], got[0], dtype));
      }
  }
}

TEST_CASE("T34: functions and general powers are near, in every dtype that loops compute them in") {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16})
    if (!known(functions, dtype).empty()) operators_agree(known(functions, dtype), dtype, false);
  for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16})
    if (!known(functions_of_two, dtype).empty()) operators_agree(known(functions_of_two, dtype), dtype, false);
  const Tensors doubles{rows(5, at::kDouble), rows(5, at::kDouble, 3)};  // would need more than double
  for (const Operator& one : functions_of_two)
    CHECK(shares([&](const Tensors& in) { return Tensors{one.run(in[0], in[1]) * 2 + 1}; }, doubles).second == 1);
}

TEST_CASE("T34: one number makes the same bits wherever it stands in a row and a batch") {
  Operators all = functions;
  for (const auto* more : {&functions_of_two, &smooth, &divisions_of_reals})
    all.insert(all.end(), more->begin(), more->end());
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const Program program = [&](const Tensors& in) {
      Tensors results;
      for (const Operator& one : all) results.push_back(one.run(in[0], in[1]));
      return results;
    };
    const auto inputs = [&](int64_t n, int64_t width, double x) {
      return Tensors{at::full({n, width}, x, dtype), at::full({n, width}, 1.7, dtype)};
    };
    const auto fused = compiled(program, inputs(5, 61, 1));
    for (const int64_t width : {3, 61, 64, 135})
      run(*fused, inputs(2, width, 1));  // short and long rows have tapes of their own
    for (const double x : {0.37, 1.3, 5.3, -2.7, 40.1, 1e-3}) {
      const Tensors one = run(*fused, inputs(2, 3, x));
      for (const int64_t width : {61, 64, 135}) {
        const Tensors many = run(*fused, inputs(33, width, x));
        for (size_t i = 0; i < all.size(); ++i) {
          if (dtype == at::kDouble && (all[i].name == std::string("atan2") || all[i].name[0] == 'p'))
            continue;  // ATen's
          CHECK_MESSAGE(same_numbers(many[i], one[i][0][0].expand({33, width})), std::string(all[i].name));
        }
      }
    }
  }
}

TEST_CASE("T34: operators of what was made of a row or a segment, short and long") {
  Operators all = piecewise;
  for (const auto* more :
       {&functions, &functions_of_two, &smooth, &derivatives, &rounding, &near_powers, &divisions_of_reals})
    all.insert(all.end(), more->begin(), more->end());
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const Operators operators = known(all, dtype);
    const Program program = [&](const Tensors& in) {
      Tensors results;
      for (const Operator& one : operators) results.push_back(one.run(in[0].amax(-1), in[1].amax(-1)));
      return results;
    };
    for (const std::vector<int64_t>& row : std::vector<std::vector<int64_t>>{{3}, {135}, {40, 5}}) {
      const auto inputs = [&](int64_t n) {
        std::vector<int64_t> sizes{n};
        sizes.insert(sizes.end(), row.begin(), row.end());
        const at::Tensor values = at::randn(sizes);
        return Tensors{(values * 3).to(dtype), (values.flip(-1) + 0.5).to(dtype)};
      };
      const auto fused = compiled(program, inputs(5));
      const bool all_in_loops = shares(program, inputs(5)).second == 0;
      CHECK((all_in_loops || dtype != at::kFloat));
      for (const int64_t n : {1, 33}) {
        const Tensors given = inputs(n), expected = program(given);
        const Tensors got = all_in_loops ? run_in_loops(*fused, given) : run(*fused, given);
        for (size_t i = 0; i < operators.size(); ++i)
          CHECK_MESSAGE(near(expected[i], got[i], dtype), std::string(operators[i].name));
      }
    }
  }
}

TEST_CASE("T34: an activation in the middle does not cut a loop in two") {
  const Program policy = [](const Tensors& in) {
    const at::Tensor y = at::gelu(in[0] * 2 + 1);
    const at::Tensor z = at::silu(y - y.mean(-1, true)).floor();
    return Tensors{z.softmax(-1), z.pow(-2).sum(-1)};
  };
  const std::pair<size_t, size_t> share = shares(policy, {data({5, 24})});
  CHECK(share.second == 0);
  const auto fused = compiled(policy, {data({5, 24})});
  for (const int64_t n : {1, 2, 31, 33}) run_in_loops(*fused, {data({n, 24})});
}

}  // namespace triage::fused
