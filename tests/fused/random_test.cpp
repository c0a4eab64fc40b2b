// Programs made at random from all that loops compute, on data of all forms, against the program itself. What a loop
// must not compute is left to ATen in between.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/flags.h>
#include <triage/graph.h>

#include <algorithm>
#include <limits>
#include <random>

#include "tests/fused/primitives/tape_sets.h"
#include "tests/fused/programs.h"

namespace triage::fused {
namespace {

/// A tensor of a program as it is made: `exact` where a loop gives ATen's bits, so that it may be compared, rounded and
/// cast.
struct MadeTensor {
  at::Tensor tensor;
  bool exact = true;
  bool of_batch = true;  // else made of weights alone
};

class Writer {
 public:
  Writer(uint32_t seed, const Tensors& inputs) : seed_(seed), random_(seed) {
    for (size_t i = 0; i < inputs.size(); ++i) made_.push_back({inputs[i], true, i < rows});
  }

  Tensors run(int steps) {
    at::Tensor flags = flag_nan_and_inf(made_[0].tensor, 1);
    for (int step = 0; step < steps; ++step) {
      of_batch_ = false;
      MadeTensor next = make();
      next.of_batch = of_batch_;
      if (next.of_batch && next.exact && is_real(next) && below(4) == 0)
        flags = flag_nan_and_inf(next.tensor, 2, flags);
      made_.push_back(std::move(next));
    }
    Tensors results{flags};
    for (size_t i = made_.size() - static_cast<size_t>(steps); i < made_.size(); ++i)
      results.push_back(made_[i].tensor);
    return results;
  }

 private:
  uint32_t below(uint32_t count) { return random_() % count; }
  const MadeTensor& any(const std::function<bool(const MadeTensor&)>& wanted) {
    const MadeTensor* found = &made_[0];
    for (int attempt = 0; attempt < 50; ++attempt)
      if (const MadeTensor& one = made_[below(static_cast<uint32_t>(made_.size()))]; wanted(one)) {
        found = &one;
        break;
      }
    of_batch_ |= found->of_batch;
    return *found;
  }
  /// In odd programs the first operand is data of the batch, whose dim to reduce over is not 1: loops compute all of
  /// them.
  const MadeTensor& first(const std::function<bool(const MadeTensor&)>& wanted) {
    const auto fits = [&](const MadeTensor& m) {
      return m.of_batch && m.tensor.dim() > 1 && m.tensor.size(dim()) != 1;
    };
    return any([&](const MadeTensor& m) { return wanted(m) && (seed_ % 2 == 0 || fits(m)); });
  }
  /// What is reduced over: in odd programs always the last dim, or always the one before: one loop looks at rows in one
  /// way.
  int64_t dim() { return seed_ % 2 == 0 ? int64_t{1} + below(2) : seed_ % 4 == 1 ? -1 : 1; }
  static bool is_real(const MadeTensor& m) { return m.tensor.is_floating_point(); }
  static bool is_single(const MadeTensor& m) { return is_real(m) && m.tensor.scalar_type() != at::kBFloat16; }
  static bool is_rows(const MadeTensor& m) { return m.tensor.dim() == 3 && is_single(m); }
  static bool is_exact(const MadeTensor& m) { return m.exact; }

  MadeTensor make() {
    switch (below(9)) {
      case 0: {
        const MadeTensor& x = first(is_real);
        switch (below(9)) {
          case 0:
            return {x.tensor.abs(), x.exact};
          case 1:
            return {x.tensor.tanh(), false};
          case 2:
            return {-x.tensor, x.exact};
          case 3:
            return {x.exact ? (x.tensor * 3).floor() : x.tensor * 3, x.exact};
          case 4:
            return {at::leaky_relu(x.tensor, 0.125), x.exact};
          case 5:
            return {at::hardswish(x.tensor), x.exact};
          case 6:
            return {at::gelu(x.tensor), false};
          case 7:
            return {at::silu(x.tensor), false};
          default:
            return {x.tensor.clamp(-1.5, 1.25), x.exact};
        }
      }
      case 1:
      case 2: {
        const MadeTensor &a = first(is_real),
                         &b = any([&](const MadeTensor&m) { return m.tensor.scalar_type() == a.tensor.scalar_type(); });
        const bool exact = a.exact && b.exact;
        switch (below(3)) {
          case 0:
            return {a.tensor + b.tensor, exact};
          case 1:
            return {a.tensor * b.tensor, exact};
          default:
            return {at::maximum(a.tensor, b.tensor), exact};
        }
      }
      case 3: {
        const MadeTensor &a = first(is_exact), &b = any(is_exact), &x = any(is_real),
                         &y = any([&](const MadeTensor&m) { return m.tensor.scalar_type() == x.tensor.scalar_type(); });
        return {at::where(a.tensor > b.tensor, x.tensor, y.tensor), x.exact && y.exact};
      }
      case 4: {
        const MadeTensor& x = first(is_rows);
        const std::vector<int64_t> dims = below(3) ? std::vector<int64_t>{dim()} : std::vector<int64_t>{1, 2};
        switch (below(4)) {
          case 0:
            return {x.tensor.sum(dims, true), false};
          case 1:
            return {x.tensor.mean(dims, true), false};
          case 2:
            return {x.tensor.amin(dims, true), x.exact};
          default:
            return {x.tensor.amax(dims, true), x.exact};
        }
      }
      case 5:
        return {first(is_rows).tensor.softmax(dim()), false};
      case 6: {
        const MadeTensor& x = first(is_exact);
        if (!is_rows(x)) return {(x.tensor > 0).to(at::kFloat)};
        return below(2) ? MadeTensor{(x.tensor > 0.25).any(dim(), true).to(at::kFloat)}
                        : MadeTensor{x.tensor.argmax(dim(), true).to(at::kFloat)};
      }
      case 7: {
        const MadeTensor& x = first(is_exact);
        const at::ScalarType to[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kInt};
        return {x.tensor.to(to[below(4)]).to(at::kFloat)};
      }
      default: {
        const MadeTensor& x = first(is_rows);
        return {x.tensor.var(dim(), false, true), false};
      }
    }
  }

  static constexpr size_t rows = 5;  // so many inputs are data of the batch
  uint32_t seed_;
  std::mt19937 random_;
  bool of_batch_ = false;
  std::vector<MadeTensor> made_;
};

Tensors inputs_of(int64_t n, int64_t t, int64_t d) {
  return {with_bad_rows({n, t, d}),
          data({n, t, 1}),
          data({n, 1, d}),
          data({n, 1, 1}),
          data({n, t, d}, at::kBFloat16),
          data({d}),
          data({t, 1}),
          data({t, d}),
          data({1, 1, d}),
          data({1})};
}

/// Near, for what went through several sums: by the largest value there is.
bool near_sums(const at::Tensor& expected, const at::Tensor& got) {
  if (expected.sizes() != got.sizes() || expected.scalar_type() != got.scalar_type()) return false;
  if (!expected.is_floating_point() || expected.numel() == 0) return expected.equal(got);
  const at::Tensor a = expected.to(at::kDouble), b = got.to(at::kDouble);
  const double largest = at::where(a.isfinite(), a.abs(), at::zeros({}, at::kDouble)).max().item<double>();
  const double eps = expected.scalar_type() == at::kBFloat16 ? 0x1p-6 : 1e-5;
  return at::allclose(a, b, 0, eps * std::max(1.0, largest), /*equal_nan=*/true);
}

/// The same bits, but for those of a NaN: which of two NaNs a sum is, no compiler promises.
bool same_but_nan(const at::Tensor& a, const at::Tensor& b) {
  if (!a.is_floating_point()) return same_bits(a, b);
  const at::Tensor nan = at::isnan(a);
  return nan.equal(at::isnan(b)) && same_bits(a.masked_fill(nan, 0), b.masked_fill(nan, 0));
}

}  // namespace

TEST_CASE("programs made at random agree with ATen, and each row is its own") {
  int whole = 0;
  for (uint32_t seed = 0; seed < 24; ++seed) {
    CAPTURE(seed);
    const Program program = [&](const Tensors& in) { return Writer(seed, in).run(9); };
    const bool all_loops = shares(program, inputs_of(5, 3, 7)).second == 0;  // ATen promises nothing of rows
    whole += all_loops;
    const auto fused = compiled(program, inputs_of(5, 3, 7));
    std::vector<std::unique_ptr<Executable>> tapes;
    for (const Primitives* set : sets_to_try()) {
      const UseInstructions use(set);
      tapes.push_back(compiled(program, inputs_of(5, 3, 7)));
    }
    for (const auto& [n, t, d] :
         {std::tuple{0, 3, 7}, {1, 3, 7}, {2, 5, 66}, {33, 3, 7}, {4, 20, 2}, {2, 70, 3}, {3, 5, 16}, {2, 90, 33}}) {
      const Tensors given = inputs_of(n, t, d), expected = program(given), got = run(*fused, given);
      REQUIRE(expected.size() == got.size());
      for (size_t i = 0; i < got.size(); ++i)
        CHECK_MESSAGE(near_sums(expected[i], got[i]), "result " << i << " differs for " << given[0].sizes());
      Tensors given_away;
      for (const at::Tensor& input : given) given_away.push_back(input.clone());
      const Tensors in_place = run(*fused, given_away, {{}, {given_away[0], given_away[4]}});
      for (size_t i = 0; i < got.size(); ++i)
        CHECK_MESSAGE(same_but_nan(got[i], in_place[i]),
                      "donated: result " << i << " differs for " << given[0].sizes());
      for (size_t k = 0; k < tapes.size(); ++k) {
        const Primitives& set = *sets_to_try()[k];
        const UseInstructions use(&set);
        const Tensors by_tapes = run(*tapes[k], given);
        for (size_t i = 0; i < got.size(); ++i)
          CHECK_MESSAGE((rounds_once(set) ? same_but_nan(got[i], by_tapes[i]) : near_sums(expected[i], by_tapes[i])),
                        set.name << ": result " << i << " differs for " << given[0].sizes());
      }
    }
    Tensors given = inputs_of(8, 3, 7);
    const Tensors clean = run(*fused, given);
    given[0] = given[0].clone();
    given[0][3].fill_(std::numeric_limits<float>::quiet_NaN());
    const Tensors after = run(*fused, given);
    Tensors some;
    for (const at::Tensor& input : inputs_of(8, 3, 7))
      some.push_back(input.size(0) == 8 ? input.slice(0, 2, 7) : input);
    const Tensors part = run(*fused, some);
    for (size_t i = 0; i < clean.size(); ++i) {
      if (!all_loops || clean[i].dim() == 0 || clean[i].size(0) != 8) continue;
      for (int64_t row = 0; row < 8; ++row)
        if (row != 3) CHECK_MESSAGE(same_bits(clean[i][row], after[i][row]), "result " << i << ", row " << row);
      CHECK_MESSAGE(same_bits(clean[i].slice(0, 2, 7), part[i]), "result " << i << " depends on the batch");
    }
  }
  CHECK(whole >= 10);
}

}  // namespace triage::fused
