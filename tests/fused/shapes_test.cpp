// Data of several dims: reductions over the last of them, and values that are the same along some.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <doctest/doctest.h>
#include <triage/flags.h>
#include <triage/graph.h>

#include <limits>

#include "tests/fused/programs.h"

namespace triage::fused {
namespace {

using MakeShaped = std::function<Tensors(int64_t rows, int64_t segments, int64_t positions)>;

/// One loop, captured at one size, for every batch size and every size of a row, and each row for itself.
void is_one_loop(const std::string& name, const Program& program, const MakeShaped& inputs) {
  const Tensors examples = inputs(5, 3, 7);
  CHECK_MESSAGE(shares(program, examples).second == 0, name << ": a part is left to ATen");
  const auto fused = compiled(program, examples);
  const auto agree = [&](const Tensors& given) {
    const Tensors expected = program(given), got = run_in_loops(*fused, given);
    REQUIRE(expected.size() == got.size());
    for (size_t i = 0; i < got.size(); ++i)
      CHECK_MESSAGE(same(expected[i], got[i]), name << ": result " << i << " differs for " << given[0].sizes());
  };
  for (const int64_t n : {0, 1, 2, 31, 32, 33}) agree(inputs(n, 3, 7));
  for (const auto& [t, d] : {std::pair{2, 64}, {70, 2}, {5, 131}, {2, 2050}, {4, 4}, {33, 16}, {100, 33}, {40, 65}})
    agree(inputs(3, t, d));
}

at::Tensor cube(int64_t n, int64_t t, int64_t d, at::ScalarType dtype = at::kFloat) {
  return with_bad_rows({n, t, d}, dtype);
}

const Program policy = [](const Tensors& in) {
  const at::Tensor f = flag_nan_and_inf(in[0], 1);
  auto [z, g] = fix(in[0], f, 1);
  const at::Tensor y = at::layer_norm(z.softmax(-1), {7}, in[1], in[2]);
  PushOptions options;
  options.where = (y.amax(-1) > 1.5).any(-1);
  return Tensors{y, err::push(g, err::value_clamped, 1, options), y.mean(-1), z.var(-1, false, true)};
};

}  // namespace

TEST_CASE("T34: reductions over the last dim of data of three") {
  const Program reductions = [](const Tensors& in) {
    const at::Tensor& x = in[0];
    const auto [most, where] = x.max(-1);
    return Tensors{x.sum(-1),       x.mean(-1, true),
                   x.amax(-1),      x.amin(-1, true),
                   (x > 0).any(-1), (x < 1.5).all(-1, true),
                   x.std(-1),       x.var(-1, false, true),
                   x.argmax(-1),    most,
                   where,           x.norm(2, -1),
                   x.norm(1, -1)};
  };
  const Program functions = [](const Tensors& in) {
    const at::Tensor& x = in[0];
    return Tensors{x.softmax(-1), x.log_softmax(-1), x - x.mean(-1, true), x / x.norm(2, -1, true).clamp_min(1e-6)};
  };
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const MakeShaped one = [&](int64_t n, int64_t t, int64_t d) { return Tensors{cube(n, t, d, dtype)}; };
    is_one_loop("reductions", reductions, one);
    is_one_loop("functions", functions, one);
  }
}

TEST_CASE("T34: reductions over dims that others follow") {
  const Program reductions = [](const Tensors& in) {
    const at::Tensor& x = in[0];
    const auto [most, where] = x.max(1);
    return Tensors{x.sum(1), x.mean(1, true), x.amax(1), x.amin(1, true), (x > 0).any(1), (x < 1.5).all(1, true),
                   x.std(1), x.argmax(1),     most,      where,           x.norm(2, 1),   x.prod(1, true)};
  };
  const Program functions = [](const Tensors& in) {
    const at::Tensor& x = in[0];
    return Tensors{x.softmax(1), x.log_softmax(1), (x - x.mean(1, true)) / (x.std(1, true, true) + 1), x.sum({1, 2}),
                   x.mean(1).softmax(-1)};
  };
  const Program policy = [](const Tensors& in) {
    const at::Tensor f = flag_nan_and_inf(in[0], 1), z = err::take_ok_p(f, in[0]) * in[1] + in[2];
    const at::Tensor y = z.softmax(1);
    PushOptions options;
    options.where = (y.amax(1) > 0.9).any(-1);
    const at::Tensor g = err::push(f, err::value_clamped, 1, options);
    return Tensors{y, g, err::take_ok_p(g, y * 2), y.sum({1, 2}), z.mean(1)};
  };
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const MakeShaped one = [&](int64_t n, int64_t t, int64_t d) { return Tensors{cube(n, t, d, dtype)}; };
    is_one_loop("reductions", reductions, one);
    is_one_loop("functions", functions, one);
  }
  is_one_loop("policy", policy, [](int64_t n, int64_t t, int64_t d) {
    return Tensors{cube(n, t, d), data({d}), data({n, t, 1})};
  });
}

TEST_CASE("short rows with records: fresh ones, merged ones, and what they say of a row") {
  const Program program = [](const Tensors& in) {
    const at::Tensor fresh = err::new_(in[0]), f = flag_nan_and_inf(in[0], 1), g = flag_nan(in[0] * 2, 2, f);
    return Tensors{fresh, err::merge({fresh, g}), err::is_ok(f), err::has_nan(g), err::take_ok_p(g, in[0]), in[1] * 2};
  };
  is_one_loop("records", program, [](int64_t n, int64_t t, int64_t) {
    return Tensors{with_bad_rows({n, t}), data({n})};
  });
}

TEST_CASE("channels, and dims between others") {
  const Program program = [](const Tensors& in) {
    return Tensors{in[0].softmax(1) * in[1], in[0].argmax(1), in[0].mean(1, true) - in[0], in[0].abs().sum({1, 2, 3})};
  };
  is_one_loop("channels", program, [](int64_t n, int64_t t, int64_t d) {
    return Tensors{with_bad_rows({n, t, 3, d}), data({t, 1, 1})};
  });
  const Program between = [](const Tensors& in) {
    return Tensors{in[0].softmax(2), in[0].amax(2), in[0] - in[0].mean(2, true), in[0] * in[1], in[0].amin({1, 2, 3})};
  };
  is_one_loop("between", between, [](int64_t n, int64_t t, int64_t d) {
    return Tensors{with_bad_rows({n, 3, t, d}), data({t, 1})};
  });
}

TEST_CASE("a reduction over the first dims and one over the last are two loops") {
  const Program both = [](const Tensors& in) { return Tensors{in[0].softmax(-1).sum(1), (in[0] * 2).amax(1).exp()}; };
  const auto fused = compiled(both, {cube(5, 3, 7)});
  for (const auto& [t, d] : {std::pair{3, 7}, {20, 40}, {2, 100}}) {
    const Tensors given{cube(4, t, d)}, expected = both(given), got = run_in_loops(*fused, given);
    for (size_t i = 0; i < got.size(); ++i) CHECK(same(expected[i], got[i]));
  }
}

TEST_CASE("T34: what is made of a segment is used in it, in the row, and in the flags of the row") {
  const Program chain = [](const Tensors& in) {
    const at::Tensor f = flag_nan_and_inf(in[0], 1), z = err::take_ok_p(f, in[0]);
    const at::Tensor y = z.softmax(-1), most = y.amax(-1);
    PushOptions options;
    options.where = (most > 0.9).any(-1);
    const at::Tensor g = flag_nan_and_inf((z - z.mean(-1, true)) / z.std(-1, true, true), 2, f);
    return Tensors{y * most.unsqueeze(-1), err::push(g, err::value_clamped, 1, options), most.sum(-1),
                   most.exp() + most.mean(-1, true), y.sum({1, 2})};
  };
  is_one_loop("chain", chain, [](int64_t n, int64_t t, int64_t d) { return Tensors{cube(n, t, d)}; });
  const Program rows = [](const Tensors& in) {
    return Tensors{in[0].sum({1, 2}), in[0].amax({1, 2}, true), in[0] - in[0].mean({1, 2}, true), in[0].std({1, 2})};
  };
  is_one_loop("rows", rows, [](int64_t n, int64_t t, int64_t d) { return Tensors{cube(n, t, d)}; });
}

TEST_CASE("T33: values that are the same along some dims") {
  const Program flat = [](const Tensors& in) {
    return Tensors{in[0] * in[1] + in[2], in[0] - in[3], in[3] * in[2], at::where(in[3] > 0, in[0], in[1]),
                   in[0] + in[4]};
  };
  is_one_loop("flat", flat, [](int64_t n, int64_t, int64_t d) {
    return Tensors{data({n, d}), data({1, d}), data({d}), data({n, 1}), data({1})};
  });
  const Program deep = [](const Tensors& in) {
    const at::Tensor &x = in[0], &segments = in[1], &positions = in[2], &weight = in[3], &both = in[4];
    return Tensors{x * segments + positions,
                   x - weight,
                   x / both,
                   segments * positions,
                   (x + in[5]).tanh(),
                   x * in[6],
                   segments.exp() * x.sum(-1, true),
                   at::where(segments > 0, x, positions),
                   positions.softmax(-1) * x,
                   segments.squeeze(-1).softmax(-1)};
  };
  is_one_loop("deep", deep, [](int64_t n, int64_t t, int64_t d) {
    return Tensors{data({n, t, d}), data({n, t, 1}), data({n, 1, d}), data({d}),
                   data({t, d}),    data({t, 1}),    data({1, 1, d})};
  });
  const Program outer = [](const Tensors& in) { return Tensors{in[0] * in[1], (in[0] + in[1]).exp()}; };
  is_one_loop("outer", outer, [](int64_t n, int64_t, int64_t d) { return Tensors{data({n, 1}), data({d})}; });
}

TEST_CASE("data of four dims: the last one or two are positions, and channels are segments") {
  const Program program = [](const Tensors& in) {
    return Tensors{in[0].softmax(-1), in[0].sum(-1), in[0].mean(-1, true) - in[0]};
  };
  is_one_loop("last", program, [](int64_t n, int64_t t, int64_t d) { return Tensors{with_bad_rows({n, t, 3, d})}; });
  const Program channels = [](const Tensors& in) {
    const at::Tensor mean = in[0].mean({2, 3}, true);
    return Tensors{(in[0] - mean) * in[1], in[0].amax({2, 3}), in[0] * in[2] + in[1]};
  };
  is_one_loop("channels", channels, [](int64_t n, int64_t t, int64_t d) {
    return Tensors{data({n, t, 3, d}), data({t, 1, 1}), data({n, t, 1, 1})};
  });
}

TEST_CASE("what is made of weights alone comes before the loop that reads it") {
  const Program scaled = [](const Tensors& in) {
    const at::Tensor scale = in[1] + 1;
    return Tensors{(in[0].relu() * scale).softmax(-1)};
  };
  const Program scaled_later = [](const Tensors& in) {
    const at::Tensor positive = in[0].relu(), scale = in[1] + 1;
    return Tensors{(positive * scale).softmax(-1)};
  };
  for (const int64_t rows : {5, 9}) {  // fewer than the weights have, and more
    CHECK(shares(scaled, {data({rows, 3, 7}), data({7})}) == std::pair<size_t, size_t>(3, 1));
    CHECK(shares(scaled_later, {data({rows, 3, 7}), data({7})}) == std::pair<size_t, size_t>(3, 1));
  }
  const Tensors examples{data({5, 3, 7}), data({7})};
  const auto fused = compiled(scaled, examples);
  const Tensors given{data({33, 2, 7}), data({7})}, expected = scaled(given), got = run(*fused, given);
  for (size_t i = 0; i < got.size(); ++i) CHECK(same(expected[i], got[i]));
}

TEST_CASE("more than two levels in one row are several loops, and agree") {
  const Program levels = [](const Tensors& in) {
    const at::Tensor y = in[0].softmax(-1), sums = (y * in[0]).sum(-1), shares = sums.softmax(-1);
    return Tensors{shares.amax(-1), y * shares.unsqueeze(-1)};
  };
  for (const int64_t n : {1, 4}) {
    const Tensors given{data({n, 2, 3, 5})};
    const auto fused = compiled(levels, {data({3, 2, 3, 5})});
    const Tensors expected = levels(given), got = run(*fused, given);
    for (size_t i = 0; i < got.size(); ++i) CHECK(same(expected[i], got[i]));
  }
}

TEST_CASE("as many segments as positions at capture: each may change without the other") {
  const Program program = [](const Tensors& in) {
    return Tensors{at::layer_norm(in[0], {4}, in[1], in[1]) * in[2], in[0].sum(-1).softmax(-1)};
  };
  const Tensors examples{data({3, 4, 4}), data({4}), data({4, 1})};
  const auto fused = compiled(program, examples);
  const Tensors given{data({5, 6, 4}), data({4}), data({6, 1})};
  const Tensors expected = program(given), got = run_in_loops(*fused, given);
  for (size_t i = 0; i < got.size(); ++i) CHECK(same(expected[i], got[i]));
}

TEST_CASE("strides of data of three dims") {
  const auto fused = compiled(policy, {cube(6, 3, 7), data({7}), data({7})});
  const at::Tensor wide = cube(6, 6, 14);
  for (const at::Tensor& z :
       {wide.slice(1, 0, 3).slice(2, 0, 7), wide.slice(1, 0, 6, 2).slice(2, 1, 14, 2), cube(7, 3, 6).transpose(0, 2),
        cube(6, 7, 3).transpose(1, 2), cube(1, 3, 7).expand({6, 3, 7}), cube(6, 1, 7).expand({6, 3, 7}),
        cube(12, 3, 7).slice(0, 0, 12, 2)}) {
    const Tensors given{z, data({14}).slice(0, 0, 14, 2), data({7})};
    const Tensors expected = policy(given), got = run_in_loops(*fused, given);
    for (size_t i = 0; i < got.size(); ++i) {
      CHECK(same(expected[i], got[i]));
      CHECK(got[i].strides() == expected[i].strides());
    }
  }
}

namespace {

void rows_are_their_own(int64_t segments) {
  const Tensors weights{data({7}), data({7})};
  const at::Tensor z = data({300, segments, 7});
  const auto fused = compiled(policy, {z, weights[0], weights[1]});
  const auto on = [&](const at::Tensor& x) { return run_in_loops(*fused, {x, weights[0], weights[1]}); };
  const Tensors clean = on(z);
  at::Tensor poisoned = z.clone();
  poisoned[17].fill_(nan);
  poisoned[40][1][2] = inf;
  const Tensors after = on(poisoned), part = on(z.slice(0, 5, 8));
  for (size_t i = 0; i < clean.size(); ++i) {
    for (int64_t row = 0; row < 300; ++row)
      if (row != 17 && row != 40) CHECK(same_bits(clean[i][row], after[i][row]));
    CHECK(same_bits(clean[i].slice(0, 5, 8), part[i]));
  }
  const int threads = at::get_num_threads();
  at::set_num_threads(3);
  const Tensors parallel = on(z);
  at::set_num_threads(threads);
  for (size_t i = 0; i < clean.size(); ++i) CHECK(same_bits(clean[i], parallel[i]));
}

}  // namespace

TEST_CASE("a row of segments never depends on its neighbours, the batch, or the number of OpenMP's workers") {
  for (const int64_t segments : {150, 2}) rows_are_their_own(segments);  // a lane for each segment, or each row
}

TEST_CASE("a sum over dims that others follow does not depend on the others, the batch, or the lane") {
  const Program program = [](const Tensors& in) { return Tensors{in[0].softmax(1), (in[0] * 1.5).mean(1)}; };
  for (const int64_t t : {7, 90}) {
    const at::Tensor z = data({40, t, 37});
    const auto fused = compiled(program, {z});
    const Tensors all = run_in_loops(*fused, {z}), rows = run_in_loops(*fused, {z.slice(0, 3, 9)}),
                  columns = run_in_loops(*fused, {z.slice(2, 5, 36).contiguous()});
    CHECK(same_bits(all[0].slice(0, 3, 9), rows[0]));
    CHECK(same_bits(all[1].slice(0, 3, 9), rows[1]));
    CHECK(same_bits(all[0].slice(2, 5, 36), columns[0]));
    CHECK(same_bits(all[1].slice(1, 5, 36), columns[1]));
  }
}

TEST_CASE("a result of loops may be viewed where ATen's may, however the inputs lie in memory") {
  const Program lone = [](const Tensors& in) { return Tensors{in[0].t().sigmoid().t().view({-1})}; };
  const Program two = [](const Tensors& in) { return Tensors{(in[0].t().exp() * 2).t().view({-1}) + 1}; };
  for (const Program& program : {lone, two})
    for (const auto& [n, d] : {std::pair{3L, 4L}, {40L, 200L}}) {
      const at::Tensor x = at::randn({n, d});
      const auto fused = compiled(program, {x});
      for (const at::Tensor& given :
           {x, at::randn({d, n}).t().contiguous(), at::randn({n, 2 * d}).slice(1, 0, d).contiguous()})
        for (int call = 0; call < 2; ++call) {
          run(*fused, {given});
          CHECK(same(program({given})[0], run(*fused, {given})[0]));
        }
    }
  const Program images = [](const Tensors& in) {
    return Tensors{(in[0].sigmoid() * 2).permute({0, 2, 3, 1}).view({-1, 16}) * 3};
  };
  const at::Tensor pixels = at::randn({2, 16, 5, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  const auto fused = compiled(images, {pixels});
  CHECK(same(images({pixels})[0], run(*fused, {pixels})[0]));
}

TEST_CASE("what goes by places in memory is computed where ATen's results lie") {
  const Program program = [](const Tensors& in) { return Tensors{(in[0].t().exp() * 2).as_strided({4}, {1})}; };
  const at::Tensor x = at::randn({2, 2});
  const auto fused = compiled(program, {x});
  for (int call = 0; call < 3; ++call) CHECK(same_bits(program({x})[0], run(*fused, {x})[0]));
}

}  // namespace triage::fused
