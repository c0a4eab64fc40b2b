// The fused backend against the interpreter: the same values, whatever lies where, and each row for itself.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <doctest/doctest.h>
#include <runtime/backends/deadline.h>
#include <runtime/backends/eager.h>
#include <runtime/backends/fused/fused.h>
#include <runtime/backends/fused/fusion_groups.h>
#include <triage/flags.h>
#include <triage/graph.h>

#include <limits>
#include <string>
#include <thread>

#include "tests/fused/programs.h"

namespace triage::fused {
namespace {

/// Runs `program` fused, captured on `examples`, on `inputs`, and compares with the program itself.
void agrees(const std::string& name, const Program& program, const Tensors& examples, const Tensors& inputs) {
  const Tensors expected = program(inputs), got = run(*compiled(program, examples), inputs);
  REQUIRE(expected.size() == got.size());
  for (size_t i = 0; i < got.size(); ++i)
    CHECK_MESSAGE(same(expected[i], got[i]), name << ": result " << i << " differs for " << inputs[0].sizes());
}

void agrees(const std::string& name, const Program& program, const std::function<Tensors(int64_t)>& inputs) {
  const Tensors examples = inputs(5);
  for (const int64_t n : {0, 1, 2, 31, 32, 33}) agrees(name, program, examples, inputs(n));
}

}  // namespace

TEST_CASE("T01 T32: policies in one group agree with the interpreter at every batch size") {
  const auto one = [](int64_t n) { return Tensors{with_bad_rows({n, 37})}; };
  agrees("softmax_repair", softmax_repair, one);
  agrees("zscore_clip", zscore_clip, one);
  CHECK(shares(softmax_repair, one(5)).second == 0);
  CHECK(shares(zscore_clip, one(5)).second == 0);
}

TEST_CASE("a join of pieces of which one has another number of rows is no loop's, and its other pieces are not read") {
  const Program program = [](const Tensors& in) {
    return Tensors{at::cat({(in[0] * 2).abs().sqrt(), in[1], in[2]}, 0)};
  };
  const Tensors inputs{data({2, 4}), data({2, 4}), data({1, 4})};
  agrees("cat of 2, 2 and 1 rows", program, inputs, inputs);
  agrees("cat of 2, 2 and 2 rows", program, {inputs[0], inputs[1], inputs[1]}, {inputs[0], inputs[1], inputs[1]});
}

TEST_CASE("loops captured at as many rows as a row has values serve every batch, with the same bits") {
  const Program program = [](const Tensors& in) {
    const at::Tensor y = in[0] * in[1] + in[2];
    return Tensors{y.exp(), at::layer_norm(y, {12}, in[1], in[2]), at::where(y > in[1], in[2], y).tanh(),
                   y.softmax(-1)};
  };
  const Program deep = [](const Tensors& in) { return Tensors{(in[0] * in[1]).exp(), (in[1] - in[0]).tanh()}; };
  const Tensors weights{data({12}), data({12})};
  const auto flat = [&](int64_t n) { return Tensors{data({n, 12}), weights[0], weights[1]}; };
  const auto blocks = [&](int64_t n) { return Tensors{data({n, 6, 4}), data({6, 4})}; };
  const auto bits_of_batch = [](const Program& own, int64_t captured, const Tensors& examples, const Tensors& inputs) {
    CHECK(shares(own, examples).second == 0);
    const auto executable = compiled(own, examples);
    const Tensors all = run(*executable, inputs);
    Tensors some = inputs;
    some[0] = inputs[0].slice(0, 0, captured);
    const Tensors first = run(*executable, some);
    for (size_t i = 0; i < all.size(); ++i) CHECK(all[i].slice(0, 0, captured).equal(first[i]));
    return all;
  };
  const Tensors wide = flat(33), deeper = blocks(33);
  const Tensors usual = bits_of_batch(program, 5, flat(5), wide), square = bits_of_batch(program, 12, flat(12), wide);
  for (size_t i = 0; i < usual.size(); ++i) CHECK(usual[i].equal(square[i]));
  bits_of_batch(deep, 6, blocks(6), deeper);
}

TEST_CASE("as many rows as a tensor beside them has, at capture: other batches get loops of their own") {
  const Program program = [](const Tensors& in) {
    return Tensors{in[0].relu().softmax(-1), in[1].exp() * 2, (in[2] - in[2].mean(-1, true)).tanh()};
  };
  const auto inputs = [](int64_t n) { return Tensors{with_bad_rows({n, 12}), data({7}), data({7, 5})}; };
  const auto fused = compiled(program, inputs(7));
  for (const int64_t n : {33, 1, 2, 31, 32, 7, 0}) {
    const Tensors expected = program(inputs(n));
    run(*fused, inputs(n));
    const Tensors got = n ? run_in_loops(*fused, inputs(n)) : run(*fused, inputs(n));
    for (size_t i = 0; i < got.size(); ++i) CHECK_MESSAGE(same(expected[i], got[i]), "result " << i << " of " << n);
  }
}

TEST_CASE("so do graphs that draw random numbers, and the numbers are those of the calls alone") {
  const Program program = [](const Tensors& in) {
    const at::Tensor kept = at::dropout(in[0], 0.5, /*train=*/true);
    return Tensors{(kept.exp() + in[0].mean(-1, true)).tanh(), in[1].exp() * 2, at::bernoulli(in[0].sigmoid())};
  };
  const auto inputs = [](int64_t n) { return Tensors{data({n, 12}), data({7, 5})}; };
  const auto fused = compiled(program, inputs(7));
  at::manual_seed(5);
  std::vector<Tensors> expected, got;
  const std::vector<int64_t> sizes{7, 33, 33, 2, 31, 33};
  for (const int64_t n : sizes) expected.push_back(program(inputs(n)));
  at::manual_seed(5);
  for (const int64_t n : sizes) {
    got.push_back(run(*fused, inputs(n)));
  }
  for (size_t call = 0; call < sizes.size(); ++call)
    for (size_t i = 0; i < got[call].size(); ++i)
      CHECK_MESSAGE(same(expected[call][i], got[call][i]), "result " << i << " of call " << call);
  const auto called = operators_called(*fused, inputs(33));  // by loops cut for other batches
  CHECK(called.count("aten::tanh") == 0);
  CHECK(called.count("aten::mean") == 0);
}

TEST_CASE("T34: elementwise operators and reductions, in every dtype that loops compute in") {
  const Program elementwise = [](const Tensors& in) {
    const at::Tensor &x = in[0], &y = in[1];
    return Tensors{x + y,
                   x * y - x,
                   x / (y * y + 1),
                   at::maximum(x, y),
                   x.clamp(-0.5, 0.5),
                   x.abs().sqrt(),
                   at::where(x > y, x, y),
                   x.isnan() | y.isinf(),
                   -x,
                   x.relu() == y};
  };
  const Program reductions = [](const Tensors& in) {
    const at::Tensor& x = in[0];
    return Tensors{x.sum(-1), x.mean(-1, true), x.amax(-1), x.amin(-1, true), (x > 0).any(-1), (x < 1.5).all(-1)};
  };
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const auto two = [&](int64_t n) { return Tensors{with_bad_rows({n, 33}, dtype), data({n, 33}, dtype)}; };
    agrees("elementwise", elementwise, two);
    agrees("reductions", reductions, two);
  }
  const Program norms = [](const Tensors& in) {
    const at::Tensor& x = in[0];
    return Tensors{x.norm(2, -1),
                   x.norm(1, -1),
                   x.norm(at::Scalar(inf), -1),
                   x * (x > 0),
                   at::layer_norm(in[1], {24}, in[2], in[3]),
                   at::layer_norm(in[1], {24}),
                   x / in[4],
                   in[4] + in[4]};
  };
  for (const auto dtype : {at::kFloat, at::kDouble})
    agrees("norms", norms, [&](int64_t n) {
      return Tensors{with_bad_rows({n, 33}, dtype), data({n, 24}, dtype), data({24}, dtype), data({24}, dtype),
                     at::arange(n).view({n, 1}) + 1};
    });
  const Program real = [](const Tensors& in) {
    const at::Tensor& x = in[0];
    return Tensors{x.exp(),          (x.abs() + 0.1).log(), x.tanh(), x.sigmoid(), x.std(-1),
                   x.var(-1, false), at::log_softmax(x, -1)};
  };
  for (const auto dtype : {at::kFloat, at::kDouble})
    agrees("transcendental", real, [&](int64_t n) { return Tensors{with_bad_rows({n, 50}, dtype)}; });
  const Program half = [](const Tensors& in) {
    const at::Tensor f = flag_nan_and_inf(in[0], 3);
    return Tensors{f, err::take_ok_p(f, in[0], 0.5), in[0].to(at::kFloat) * 2};
  };
  for (const auto dtype : {at::kHalf, at::kBFloat16})
    agrees("half precision", half, [&](int64_t n) { return Tensors{with_bad_rows({n, 24}, dtype)}; });
  const Program rounded = [](const Tensors& in) {
    return Tensors{in[0].pow(3) * 2, in[1] + int64_t{1152921573326323713}, in[1] * int64_t{16777217}};
  };
  agrees("numbers and cubes, rounded where ATen rounds", rounded, [&](int64_t n) {
    return Tensors{data({n, 24}, at::kBFloat16) * 3, data({n, 24}, at::kFloat)};
  });
}

TEST_CASE("T34: argmax and its kind: the first of equal values, and a NaN before all") {
  const Program positions = [](const Tensors& in) {
    const auto [most, where_most] = in[0].max(-1);
    const auto [least, where_least] = in[0].min(-1, true);
    return Tensors{in[0].argmax(-1), in[0].argmin(-1, true), most, where_most, least, where_least};
  };
  for (const auto dtype : {at::kFloat, at::kDouble, at::kLong, at::kByte}) {
    const auto ties = [&](int64_t n) {
      at::Tensor x = (at::arange(n * 37).view({n, 37}) * 7).remainder(11).to(dtype);
      if (n > 1) x[1].fill_(3);
      if (at::isFloatingType(dtype))
        for (int64_t row = 0; row < n; row += 3) x[row].slice(0, row % 37, 37, 5).fill_(row % 2 ? nan : -inf);
      return Tensors{x};
    };
    agrees("positions", positions, ties);
    CHECK(shares(positions, ties(5)).second == 0);
  }
}

TEST_CASE("T34: layer_norm with a weight is one loop, and holds for its own width alone") {
  const Program norm = [](const Tensors& in) { return Tensors{at::layer_norm(in[0], {24}, in[1], in[2]) * 2}; };
  CHECK(shares(norm, {data({5, 24}), data({24}), data({24})}).second == 0);
  const auto fused = compiled(norm, {data({5, 24}), data({24}), data({24})});
  CHECK_THROWS_AS(run(*fused, {data({5, 12}), data({12}), data({12})}), Error);
}

TEST_CASE("sizes that stand in the graph hold") {
  const Program spread = [](const Tensors& in) { return Tensors{in[0].sum(-1, true).expand({5, 7}) * 2, in[1] + 1}; };
  const auto inputs = [](int64_t n, int64_t d) { return Tensors{data({n, d}), data({n, 7})}; };
  CHECK(shares(spread, inputs(5, 7)).second == 0);
  const auto fused = compiled(spread, inputs(5, 7));
  const Tensors expected = spread(inputs(5, 7)), got = run(*fused, inputs(5, 7));
  for (size_t i = 0; i < got.size(); ++i) CHECK(same(expected[i], got[i]));
  CHECK_THROWS_AS(run(*fused, inputs(4, 7)), Error);
  const Tensors other = run(*fused, inputs(5, 9));
  CHECK(same(spread(inputs(5, 9))[0], other[0]));
}

TEST_CASE("T33: rows, columns, numbers and several extents in one group") {
  const Program mixed = [](const Tensors& in) {
    const at::Tensor &z = in[0], &weight = in[1], &q = in[2], &scale = in[3];
    const at::Tensor f = flag_nan_and_inf(q, 2, flag_nan(z, 1));
    const at::Tensor y = z * weight + z.mean(-1, true);
    return Tensors{y * scale, f, q * 2, y.sum(-1), err::count_errors(f)};
  };
  agrees("mixed", mixed, [](int64_t n) {
    return Tensors{with_bad_rows({n, 19}), data({19}), with_bad_rows({n, 3, 5}), at::scalar_tensor(1.5f)};
  });
}

TEST_CASE("strides: rows with gaps, transposed data, expanded rows") {
  const Tensors examples{with_bad_rows({6, 16})};
  const auto fused = compiled(softmax_repair, examples);
  const at::Tensor wide = with_bad_rows({6, 32});
  for (const at::Tensor& z : {wide.slice(1, 0, 16), wide.slice(1, 0, 32, 2), with_bad_rows({16, 6}).t(),
                              with_bad_rows({1, 16}).expand({6, 16}), with_bad_rows({12, 16}).slice(0, 0, 12, 2)}) {
    const Tensors expected = softmax_repair({z}), got = run(*fused, {z});
    CHECK(same(expected[0], got[0]));
    CHECK(expected[1].equal(got[1]));
    for (size_t i = 0; i < got.size(); ++i) CHECK(got[i].strides() == expected[i].strides());
  }
}

TEST_CASE("inputs that the loops were not written for go to the interpreter") {
  const Program add = [](const Tensors& in) { return Tensors{(in[0] + in[1]) * 2, in[0] - in[1]}; };
  const auto fused = compiled(add, {data({4, 6}), data({4, 6})});
  for (const Tensors& given : {Tensors{data({4, 6}), data({1, 6})}, Tensors{data({4, 6}), data({4, 1})},
                               Tensors{data({4, 0}), data({4, 0})}, Tensors{data({4, 9}), data({4, 9})}}) {
    const Tensors expected = add(given), got = run(*fused, given);
    CHECK(expected[0].equal(got[0]));
    CHECK(expected[1].equal(got[1]));
  }
  CHECK_THROWS_AS(run(*fused, {data({4, 6}), data({3, 5})}), Error);
}

TEST_CASE("a column of several dims has the sizes of a row, not only their product") {
  const Program add = [](const Tensors& in) { return Tensors{in[0] + in[1], in[0] * in[1]}; };
  const auto fused = compiled(add, {data({3, 2, 5}), data({2, 5})});
  const Tensors broad{data({4, 5, 1}), data({1, 5})};
  const Tensors expected = add(broad), got = run(*fused, broad);
  CHECK(expected[0].equal(got[0]));
  CHECK_THROWS_AS(run(*fused, {data({4, 3, 2}), data({2, 3})}), Error);
}

TEST_CASE("integers wrap, and a NaN bound is a bound") {
  const Program whole = [](const Tensors& in) {
    return Tensors{(in[0] + 1).gt(in[0]), (-in[0]).lt(0), in[0].abs().ge(0)};
  };
  const at::Tensor ends =
      at::tensor({std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()}).view({1, 2});
  const Tensors expected = whole({ends}), got = run(*compiled(whole, {ends}), {ends});
  for (size_t i = 0; i < got.size(); ++i) CHECK(expected[i].equal(got[i]));
  agrees("clamp",
         [](const Tensors& in) {
           return Tensors{(in[0] * 1).clamp_min(nan), in[0].clamp(nan, 1.0) + 1};
         },
         {data({4, 6})}, {data({4, 6})});
}

TEST_CASE("sums of long rows keep their digits") {
  const Program mean = [](const Tensors& in) { return Tensors{in[0].mean(-1), in[0].sum(-1), in[0].std(-1)}; };
  const at::Tensor x = at::full({2, 800'000}, 0.7);
  const Tensors got = run(*compiled(mean, {x}), {x});
  CHECK(got[0][0].item<double>() == doctest::Approx(0.7).epsilon(1e-6));
  CHECK(got[1][0].item<double>() == doctest::Approx(560'000).epsilon(1e-6));
  CHECK(got[2][0].item<double>() < 1e-5);
}

TEST_CASE("rows of every length: no position is left out, none counts twice") {
  const Program all = [](const Tensors& in) {
    const at::Tensor& x = in[0];
    return Tensors{x.sum(-1), x.amin(-1), x.argmax(-1), x.gt(7).any(-1), x - x.amax(-1, true)};
  };
  const auto whole_numbers = [](int64_t width, at::ScalarType dtype) {  // their sums are exact
    return (at::arange(3 * width) * 7919 % 17 - 8).view({3, width}).to(dtype);
  };
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kLong, at::kChar}) {
    const auto fused = compiled(all, {whole_numbers(20, dtype)});
    for (const int64_t width : {2, 15, 16, 17, 63, 64, 65, 80, 127, 128, 131, 2047, 2048, 2049, 2112, 4100}) {
      const at::Tensor x = whole_numbers(width, dtype);
      const Tensors expected = all({x}), got = run(*fused, {x});
      for (size_t i = 0; i < got.size(); ++i)
        CHECK_MESSAGE(expected[i].equal(got[i]), "result " << i << " differs for " << width << " of dtype " << dtype);
    }
  }
}

TEST_CASE("a deadline stops a fused graph too") {
  const at::Tensor z = data({4, 6});
  const auto fused = compiled(softmax_repair, {z});
  const auto passed = std::chrono::steady_clock::now() - std::chrono::seconds(1);
  CHECK_THROWS_AS(run(*fused, {z}, {passed}), LimitError);
}

TEST_CASE("a graph of loops and ATen calls: what is between them keeps its order") {
  const Program layers = [](const Tensors& in) {
    auto [z, f] = fix(in[0], flag_nan_and_inf(in[0], 1), 1);
    const at::Tensor h = at::mm(z.tanh(), in[1]);
    const at::Tensor g = flag_nan_and_inf(h, 2, f);
    return Tensors{(h * 2).relu(), g, h.sum(0), in[0]};
  };
  const auto inputs = [](int64_t n) { return Tensors{with_bad_rows({n, 8}), data({8, 4})}; };
  agrees("layers", layers, inputs);
  const auto [loops, calls] = shares(layers, inputs(5));
  CHECK(loops >= 6);
  CHECK(calls == 2);
}

TEST_CASE("numbers that are made of sizes are the loop's that reads them, or there before it") {
  const graph::Graph graph = graph::parse(R"(graph repair(%x: "f32[4, 6]"):
  %c0: "f64[]" = constant 1.0
  %1: "i64[4, 4]" flags = triage::flag_nan_and_inf(%x, None, location=7, num_slots=16, policy=24, dtype=int64)
  %2: "f32[4, 6]" = aten::softmax.int(%x, -1)
  %3: "i64[]" = triage::size(%x, 1)
  %4: "f64[]" = aten::to.dtype(%3, float64)
  %5: "f64[]" = aten::div.Tensor(%c0, %4)
  %6: "f32[4, 6]" = triage::take_ok_p(%1, %2, fill=%5)
  return %6, %1
)");
  const auto in_loops = [](const graph::Graph& of) {
    size_t count = 0;
    for (const FusionGroup& part : cut(of)) count += part.fused ? part.graph.nodes().size() : 0;
    return count;
  };
  CHECK(in_loops(graph) == 6);
  // How many rows there are, and what others read, no loop computes.
  CHECK(in_loops(graph::parse(R"(graph mean(%x: "f32[4, 6]"):
  %1: "i64[]" = triage::size(%x, 0)
  %2: "f64[]" = aten::to.dtype(%1, float64)
  %3: "f64[]" = aten::mul.Scalar(%2, 2.0)
  %4: "f32[4, 6]" = aten::div.Tensor(%x, %3)
  %5: "f32[4, 6]" = aten::relu(%4)
  return %5, %2
)")) == 3);
  const at::Tensor x = with_bad_rows({4, 6});
  const auto fused = find_backend("fused")(graph, {x}), eager = compile_eager(graph, {x});
  for (const int64_t n : {1, 4, 33}) {
    const Tensors given{with_bad_rows({n, 9})};
    const Tensors got = run(*fused, given), expected = run(*eager, given);
    CHECK(same(expected[0], got[0]));
    CHECK(expected[1].equal(got[1]));
  }
}

TEST_CASE("a number that is made of sizes is looked at in every call, where ATen raises for one beyond the range") {
  const graph::Graph graph = graph::parse(R"(graph repair(%x: "f32[4, 3]"):
  %c0: "f64[]" = constant 1e38
  %1: "i64[4, 4]" flags = triage::flag_nan_and_inf(%x, None, location=7, num_slots=16, policy=24, dtype=int64)
  %2: "i64[]" = triage::size(%x, 1)
  %3: "f64[]" = aten::to.dtype(%2, float64)
  %4: "f64[]" = aten::mul.Tensor(%c0, %3)
  %5: "f32[4, 3]" = triage::take_ok_p(%1, %x, fill=%4)
  return %5, %1
)");
  const std::vector<FusionGroup> parts = cut(graph);
  REQUIRE(parts.size() == 1);
  CHECK(parts[0].fused);
  const auto fused = find_backend("fused")(graph, {with_bad_rows({4, 3})}), eager = compile_eager(graph, {});
  for (int again = 0; again < 2; ++again) {
    for (const int64_t size : {3, 2}) {
      const Tensors given{with_bad_rows({4, size})};
      CHECK(same_bits(run(*eager, given)[0], run(*fused, given)[0]));
    }
    for (const int64_t size : {4, 9}) {
      const Tensors given{with_bad_rows({4, size})};
      CHECK_THROWS_AS(run(*eager, given), Error);
      CHECK_THROWS_AS(run(*fused, given), Error);
    }
  }
}

TEST_CASE("a row never depends on its neighbours, the batch, or the number of OpenMP's workers") {
  for (const auto& program : {Program(softmax_repair), Program(zscore_clip)}) {
    const at::Tensor z = data({64, 321});
    const auto fused = compiled(program, {z});
    const Tensors clean = run(*fused, {z});
    at::Tensor poisoned = z.clone();
    poisoned[17].fill_(nan);
    poisoned[40][3] = inf;
    const Tensors after = run(*fused, {poisoned});
    const Tensors part = run(*fused, {z.slice(0, 5, 8)}),
                  shifted = run(*fused, {at::cat({z.slice(1, 0, 1), z}, 1).slice(1, 1)});
    for (int64_t row = 0; row < 64; ++row) {
      for (size_t i = 0; i < clean.size(); ++i) {
        if (row != 17 && row != 40) CHECK(same_bits(clean[i][row], after[i][row]));
        if (row >= 5 && row < 8) CHECK(same_bits(clean[i][row], part[i][row - 5]));
        CHECK(same_bits(clean[i][row], shifted[i][row]));
      }
    }
    const int threads = at::get_num_threads();
    at::set_num_threads(3);
    const Tensors parallel = run(*fused, {z});
    at::set_num_threads(threads);
    for (size_t i = 0; i < clean.size(); ++i) CHECK(same_bits(clean[i], parallel[i]));
  }
}

TEST_CASE("one executable in several threads") {
  const at::Tensor z = with_bad_rows({40, 64});
  const auto fused = compiled(zscore_clip, {z});
  const Tensors expected = zscore_clip({z});
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int call = 0; call < 200; ++call) {
        const Tensors got = run(*fused, {z});
        wrong += !same(expected[0], got[0]) || !expected[1].equal(got[1]);
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("memory of large outputs is used again when nobody holds it, and never before") {
  const at::Tensor z = data({512, 300});
  const auto fused = compiled(softmax_repair, {z});
  Tensors held;
  for (int call = 0; call < 10; ++call) held.push_back(run(*fused, {z})[0]);
  for (size_t i = 0; i < held.size(); ++i) {
    for (size_t k = 0; k < i; ++k) CHECK_FALSE(held[i].is_alias_of(held[k]));
    CHECK(same_bits(held[i], held[0]));
  }
  const at::Tensor view = held[0][3];  // a view keeps the whole
  const void* memory = held[0].data_ptr();
  const float kept = view[0].item<float>();
  held.clear();
  for (int call = 0; call < 10; ++call) {
    at::Tensor again = run(*fused, {z * 2})[0];
    CHECK(again.data_ptr() != memory);
  }
  CHECK(view[0].item<float>() == kept);
}

TEST_CASE("a graph that was read from text cannot make a loop write where it should not") {
  const at::Tensor f = err::new_t(3), z = data({3, 4});
  const graph::Graph graph = graph::parse(
      "graph g(%f: \"i64[3, 4]\" flags):\n"
      "  %1: \"i64[3, 4]\" flags = triage::push.scalar(%f, code=1, location=1, severity=1, num_slots=999, policy=24)\n"
      "  %2: \"i64[3]\" = triage::get_slot(%1, index=999)\n"
      "  return %1, %2\n");
  const auto fused = compile_fused(graph, {f});
  CHECK_THROWS_AS(run(*fused, {f}), Error);
}

}  // namespace triage::fused
