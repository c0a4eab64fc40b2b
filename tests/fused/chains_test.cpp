// Selections made at random: by rows, by one number, by elements, of values that several levels of a loop read. Loops
// give the bits of ATen, by tapes in every form of rows, and where inputs are donated. TRIAGE_CHAINS=N makes N
// programs.
#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <cstdlib>
#include <random>

#include <triage/flags.h>

#include "tests/fused/programs.h"

namespace triage::fused {
namespace {

class Chain {
 public:
  Chain(uint32_t seed, const Tensors& in)
      : random_(seed), values_{in[0], in[1], in[2]}, numbers_{in[3], in[4]}, rows_{in[5]} {}

  Tensors run() {
    Tensors results;
    for (uint32_t left = 10 + below(20); left > 0; --left) {
      step();
      if (below(6) == 0) results.push_back(values_.back());
      if (below(12) == 0) results.push_back(rows_.back());
    }
    results.push_back(at::where(row(), value(), values_.back()));
    return results;
  }

 private:
  uint32_t below(uint32_t count) { return random_() % count; }
  const at::Tensor& one_of(const Tensors& list) { return list[below(static_cast<uint32_t>(list.size()))]; }
  const at::Tensor& value() { return one_of(values_); }
  const at::Tensor& row() { return one_of(rows_); }

  void step() {
    switch (below(12)) {
      case 0:
      case 1:
      case 2:
        return values_.push_back(at::where(row(), value(), value()));
      case 3:
        return values_.push_back(at::where(one_of(numbers_), value(), value()));
      case 4:
        return values_.push_back(at::where(value() > 0.25, value(), value()));
      case 5:
        return values_.push_back(below(2) ? at::where(row(), 0.5, value()) : value() * 2 - 1);
      case 6:
        return rows_.push_back(value().isnan().any(-1, true));
      case 7:
        return rows_.push_back(value().amax(-1, true) > 0.5);
      case 8:
        return rows_.push_back(below(2) ? row() & row() : ~row());
      case 9:
        return rows_.push_back(err::is_err(flag_nan_and_inf(value(), 1)).unsqueeze(1));
      case 10:
        return rows_.push_back(((value() > 0.25) & (value() < 0.75)).any(-1, true));
      default:
        return rows_.push_back((value() <= value()).all(-1, true));
    }
  }

  std::mt19937 random_;
  Tensors values_, numbers_, rows_;
};

/// Without bad rows, rows that lie side by side are searched at once.
Tensors inputs_of(int64_t n, int64_t width, uint32_t seed, bool is_clean = false) {
  const auto number = [&](uint32_t bit) { return at::full({}, (seed >> bit & 1) != 0, at::kBool); };
  const at::Tensor x = is_clean ? data({n, width}) : with_bad_rows({n, width});
  return {x, x.roll(3, 0) * 0.75, data({n, width}), number(0), number(1), (at::arange(n) % 3 == 0).view({n, 1})};
}

uint32_t number_of_programs() {
  const char* const asked = std::getenv("TRIAGE_CHAINS");
  return asked ? static_cast<uint32_t>(std::strtoul(asked, nullptr, 10)) : 400;
}

void check(uint32_t seed, const Executable& tapes, const Tensors& inputs) {
  const Tensors expected = Chain(seed, inputs).run();
  Tensors given;
  for (const at::Tensor& input : inputs) given.push_back(input.clone());
  const auto agrees = [&](const char* what, const Tensors& got) {
    for (size_t i = 0; i < expected.size(); ++i)
      CHECK_MESSAGE(same_bits(expected[i], got[i]),
                    "program " << seed << ", " << inputs[0].sizes() << ", " << what << ": result " << i);
  };
  agrees("tapes", run(tapes, inputs));
  agrees("donated", run(tapes, given, {{}, {given[0], given[2]}}));
}

}  // namespace

TEST_CASE("selections made at random have ATen's bits, whatever level of a loop reads them") {
  constexpr int64_t widths[] = {1, 4, 7, 16, 40, 200, 700, 2100}, batches[] = {1, 2, 31, 32, 33, 100};
  for (uint32_t seed = 0; seed < number_of_programs(); ++seed) {
    const Program program = [&](const Tensors& in) { return Chain(seed, in).run(); };
    const Tensors example = inputs_of(5, 4, seed);
    const auto tapes = compiled(program, example);
    for (const uint32_t shape : {seed, seed / 8 + 1, seed / 48 + 2})
      for (const bool is_clean : {false, true})
        check(seed, *tapes, inputs_of(batches[shape / 8 % 6], widths[shape % 8], seed, is_clean));
  }
}

TEST_CASE("one input that is searched several times is searched at once, in batches of every size") {
  using Search = at::Tensor (*)(const at::Tensor&);
  constexpr Search searches[] = {[](const at::Tensor& x) { return flag_nan(x, 1); },
                                 [](const at::Tensor& x) { return flag_inf(x, 1); },
                                 [](const at::Tensor& x) { return flag_nan_and_inf(x, 1); },
                                 [](const at::Tensor& x) { return at::isnan(x).any(-1); },
                                 [](const at::Tensor& x) { return at::isinf(x).any(-1); },
                                 [](const at::Tensor& x) { return at::isfinite(x).all(-1); },
                                 [](const at::Tensor& x) { return (x > 1.5).any(-1); },
                                 [](const at::Tensor& x) { return (x <= 3).all(-1); },
                                 [](const at::Tensor& x) { return x.amax(-1); }};
  for (const Search one : searches)
    for (const Search other : searches) {
      const Program program = [=](const Tensors& in) { return Tensors{one(in[0]), other(in[0])}; };
      const auto tapes = compiled(program, {data({5, 4})});
      for (const int64_t n : {1, 2, 3, 4, 5, 31, 32, 33, 64})
        for (const int64_t width : {1, 3, 4, 33, 600})
          for (const bool is_clean : {false, true}) {
            const Tensors given = {is_clean ? data({n, width}) : with_bad_rows({n, width})};
            const Tensors expected = program(given), got = run(*tapes, given);
            for (size_t i = 0; i < expected.size(); ++i)
              CHECK_MESSAGE(same_bits(expected[i], got[i]), "result " << i << " of " << n << "x" << width);
          }
    }
}

TEST_CASE("selections of rows within selections have ATen's bits, however deep they are") {
  for (int depth = 1; depth <= 14; ++depth) {
    const Program nested = [&](const Tensors& in) {
      const at::Tensor& x = in[0];
      std::vector<at::Tensor> others;  // computed before the innermost values, and read behind them
      for (int k = 0; k < depth; ++k) others.push_back(x * (k + 2));
      at::Tensor chosen = (x + 0.5) * x;
      for (int k = 0; k < depth; ++k)
        chosen = at::where(in[1].remainder(k + 2).eq(0).unsqueeze(1), others[static_cast<size_t>(k)] - 1, chosen);
      return Tensors{chosen};
    };
    const auto inputs = [](int64_t n) { return Tensors{data({n, 40}), at::arange(n)}; };
    const auto tape = compiled(nested, inputs(5));
    for (const int64_t n : {1, 2, 31, 32, 33, 100}) {
      const Tensors given = inputs(n), expected = nested(given), got = run(*tape, given);
      CHECK_MESSAGE(same_bits(expected[0], got[0]), "depth " << depth << ", " << n << " rows");
    }
  }
}

}  // namespace triage::fused
