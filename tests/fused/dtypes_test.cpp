// Dtypes in loops: casts with ATen's bits, half precision, reductions of whole numbers and in another dtype.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/flags.h>
#include <triage/graph.h>

#include <cmath>
#include <limits>

#include "tests/fused/programs.h"

namespace triage::fused {
namespace {

using MakeRows = std::function<Tensors(int64_t rows)>;

void agrees_in_dtype(const std::string& name, const Program& program, const MakeRows& inputs, double ulps = 0) {
  const Tensors examples = inputs(5);
  CHECK_MESSAGE(shares(program, examples).second == 0, name << ": a part is left to ATen");
  const auto fused = compiled(program, examples);
  for (const int64_t n : {0, 1, 2, 31, 32, 33}) {
    const Tensors given = inputs(n), expected = program(given), got = run_in_loops(*fused, given);
    REQUIRE(expected.size() == got.size());
    for (size_t i = 0; i < got.size(); ++i)
      CHECK_MESSAGE(same(expected[i], got[i], ulps), name << ": result " << i << " differs for " << given[0].sizes()
                                                          << " of " << given[0].scalar_type());
  }
}

/// Numbers at and beyond the ends of every dtype, and those that are none.
at::Tensor edges(at::ScalarType dtype) {
  std::vector<double> list{0.0,  -0.0,     0.5,       -0.5,  0.999999, -0.999999, NAN,
                           -NAN, INFINITY, -INFINITY, 1e300, -1e300,   5e-324};
  for (const int bits : {7, 8, 15, 16, 31, 32, 53, 62, 63, 64})
    for (const double sign : {1.0, -1.0})
      for (const double off : {-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 1e4, 3e9})
        list.push_back(sign * (std::ldexp(1.0, bits) + off));
  for (int i = -400; i < 400; ++i) list.push_back(i * 0.75);
  return at::tensor(list, at::kDouble).to(dtype);
}

}  // namespace

TEST_CASE("T34: real numbers become whole ones as with ATen, beyond the range and NaN too") {
  for (const auto from : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    for (const auto to : {at::kLong, at::kInt, at::kShort, at::kChar, at::kByte, at::kBool}) {
      const Program cast = [&](const Tensors& in) { return Tensors{in[0].to(to), in[0].to(to).sum(-1)}; };
      const at::Tensor x = edges(from);
      for (const int64_t width : {int64_t{1}, int64_t{7}, x.numel()}) {
        const at::Tensor rows = x.slice(0, 0, x.numel() / width * width).view({-1, width});
        if (width == 1) continue;
        const Tensors expected = cast({rows}), got = run_in_loops(*compiled(cast, {rows}), {rows});
        for (size_t i = 0; i < got.size(); ++i)
          CHECK_MESSAGE(expected[i].equal(got[i]), from << " to " << to << ", result " << i << ", rows of " << width);
      }
    }
  }
}

TEST_CASE("T34: any and all of numbers, and reductions of whole ones") {
  const Program questions = [](const Tensors& in) {
    return Tensors{in[0].any(-1), in[0].all(-1), in[0].any(-1, true), in[0].all(-1, true)};
  };
  for (const auto dtype : {at::kFloat, at::kDouble, at::kLong, at::kInt, at::kByte, at::kBool})
    agrees_in_dtype("any and all", questions, [&](int64_t n) {
      at::Tensor x = (at::arange(n * 20).view({n, 20}) % 3).to(dtype);
      if (n > 1) x[1].zero_();
      if (n > 0) x[0].fill_(1);
      if (n > 2 && at::isFloatingType(dtype)) x[2][0] = NAN;
      return Tensors{x};
    });
  const Program whole = [](const Tensors& in) {
    const at::Tensor& x = in[0];
    return Tensors{x.sum(-1),
                   x.prod(-1),
                   x.amax(-1),
                   x.amin(-1, true),
                   x.argmax(-1),
                   x.sum(-1, false, at::kFloat),
                   x.sum(-1, true, at::kInt),
                   x.mean(-1, false, at::kDouble),
                   x.prod(-1, true, at::kDouble)};
  };
  for (const auto dtype : {at::kLong, at::kInt, at::kShort, at::kChar, at::kByte})
    agrees_in_dtype("whole numbers", whole, [&](int64_t n) {
      return Tensors{(at::arange(n * 21).view({n, 21}) * 7919 % 200).to(dtype)};
    });
}

TEST_CASE("T34: sums in another dtype convert first") {
  const Program sums = [](const Tensors& in) {
    const at::Tensor& x = in[0];
    return Tensors{x.sum(-1, false, at::kDouble), x.mean(-1, true, at::kDouble), x.softmax(-1, at::kDouble),
                   x.log_softmax(-1, at::kDouble)};
  };
  for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16})
    agrees_in_dtype(
        "in double", sums,
        [&](int64_t n) {
          return Tensors{with_bad_rows({n, 29}, dtype)};
        },
        2);
  const Program trillions = [](const Tensors& in) {
    return Tensors{in[0].sum(-1, false, at::kLong), in[0].clone().sum(-1)};
  };
  agrees_in_dtype("whole sums of reals", trillions, [&](int64_t n) { return Tensors{data({n, 29}) * 1e3}; });
}

TEST_CASE("T34: half precision: computed in float32, and rounded where ATen rounds") {
  const Program reductions = [](const Tensors& in) {
    const at::Tensor& x = in[0];
    return Tensors{x.sum(-1), x.mean(-1, true), x.amax(-1), x.argmin(-1), x.sum({1, 2}), x.mean({1, 2}), x.any(-1)};
  };
  for (const auto dtype : {at::kHalf, at::kBFloat16})
    agrees_in_dtype(
        "reductions", reductions,
        [&](int64_t n) {
          return Tensors{with_bad_rows({n, 3, 24}, dtype)};
        },
        4);
  const Program functions = [](const Tensors& in) {
    const at::Tensor& x = in[0];
    return Tensors{x.softmax(-1),
                   x.log_softmax(-1),
                   x.norm(2, -1),
                   x.norm(1, -1),
                   x.std(-1),
                   x.var(-1, false),
                   at::layer_norm(in[1], {24}, in[2], in[3]),
                   at::layer_norm(in[1], {24})};
  };
  agrees_in_dtype(
      "functions", functions,
      [&](int64_t n) {
        return Tensors{with_bad_rows({n, 3, 24}, at::kBFloat16), data({n, 3, 24}, at::kBFloat16),
                       data({24}, at::kBFloat16), data({24}, at::kBFloat16)};
      },
      4);
}

}  // namespace triage::fused
