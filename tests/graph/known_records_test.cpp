// What decomposition knows of records that were empty: how long the graphs become, where the knowledge ends, and the
// same bits.
#include <doctest/doctest.h>
#include <rapidcheck.h>
#include <triage/flags.h>

#include "tests/graph/build.h"

using namespace triage;
using namespace triage::graph;
using namespace triage::test;

namespace {

using at::Tensor;
using Program = std::function<Tensors(const Tensors&)>;

ErrorConfig config_of(int64_t slots, at::ScalarType carrier = at::kLong, int64_t policy = 24) {
  ErrorConfig config;
  config.num_slots = slots;
  config.flag_dtype = carrier;
  config.accumulation = {static_cast<Priority>(policy & 3), static_cast<Order>(policy >> 2 & 1),
                         static_cast<Dedupe>(policy >> 3 & 3)};
  config.track_overflow = (policy & TRACK_OVERFLOW) != 0;
  return config;
}

FixOptions fixing(const ErrorConfig& config, double fallback = 0.0) {
  FixOptions options;
  options.fallback = fallback;
  options.config = config;
  return options;
}

PushOptions pushing(const ErrorConfig& config, const Tensor& where = {}) {
  PushOptions options;
  options.where = where;
  options.config = config;
  return options;
}

/// `sizes` without the batch.
Tensor data(int64_t rows, std::vector<int64_t> sizes, at::ScalarType dtype = at::kFloat, bool strided = false) {
  sizes.insert(sizes.begin(), strided ? rows * 2 : rows);
  Tensor z = at::randn(sizes);
  z = at::where(at::rand(sizes) < 0.15, std::numeric_limits<float>::quiet_NaN(), z);
  z = at::where(at::rand(sizes) < 0.15, -std::numeric_limits<float>::infinity(), z).to(dtype);
  return strided ? z.slice(0, 0, rows * 2, 2) : z;
}

Graph plain_of(const Program& program, const Tensors& examples) {
  Graph graph = trace(program, examples);
  return decompose(graph);
}

size_t calls_of(const Program& program, const Tensors& examples) { return plain_of(program, examples).nodes().size(); }

/// That graph, captured on 32 rows, and its decomposition at every batch size.
void check_bits(const Program& program, const std::function<Tensors(int64_t)>& inputs) {
  const Graph graph = trace(program, inputs(32)), plain = decompose(graph);
  for (const int64_t rows : BATCHES) {
    const Tensors given = inputs(rows), expected = run(graph, given), got = run(plain, given);
    REQUIRE(expected.size() == got.size());
    for (size_t i = 0; i < got.size(); ++i)
      CHECK_MESSAGE(same_bits(expected[i], got[i]), rows << " rows, result " << i << " of\n" << print(plain));
  }
}

Tensors repaired(const Tensor& z, const ErrorConfig& config) {
  const Tensor f = flag_nan_and_inf(z, 3, {}, {config});
  const auto [value, flags] = fix(z, f, 3, fixing(config));
  return {value, flags};
}

}  // namespace

TEST_CASE("decompose: detection and repair are a tenth as long as they would be for any records") {
  const ErrorConfig config = config_of(16);
  for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{{}, {8}, {3, 4}, {2, 3, 4}}) {
    const Tensors z{data(32, sizes)};
    const size_t view = sizes.size() != 1;
    CHECK(calls_of([&](const Tensors& in) { return Tensors{flag_nan_and_inf(in[0], 3, {}, {config})}; }, z) <=
          8 + view);
    CHECK(calls_of([&](const Tensors& in) { return repaired(in[0], config); }, z) <= 10 + 2 * view);
    check_bits([&](const Tensors& in) { return repaired(in[0], config); },
               [&](int64_t rows) { return Tensors{data(rows, sizes, at::kFloat, rows % 2 == 1)}; });
  }
}

TEST_CASE("decompose: questions about detected errors are the masks that found them") {
  const ErrorConfig config = config_of(16);
  const Program program = [&](const Tensors& in) {
    const Tensor f = flag_nan_and_inf(in[0], 3, {}, {config});
    return Tensors{err::has_code(f, err::nan), err::has_code(f, err::inf), err::is_ok(f), err::has_code(f, err::nan),
                   err::count_errors(f)};
  };
  CHECK(calls_of(program, {data(32, {8})}) <= 16);
  check_bits(program, [](int64_t rows) { return Tensors{data(rows, {8})}; });
  const Tensors answers = run(plain_of(program, {data(32, {8})}), {data(5, {8})});
  for (size_t i = 0; i < answers.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (!(k == 0 && i == 3)) CHECK_FALSE(answers[i].is_alias_of(answers[k]));
}

TEST_CASE("decompose: zeros that a graph makes are empty records") {
  const ErrorConfig config = config_of(16);
  const auto push = [&](const Tensor& f) { return Tensors{err::push(f, err::inf, 7, pushing(config))}; };
  const Program programs[] = {
      [&](const Tensors& in) { return push(err::new_(in[0], {config})); },
      [&](const Tensors& in) { return push(at::zeros_like(in[1])); },
      [&](const Tensors& in) {
        return push(in[1].new_zeros({in[1].size(0), 4}));
      },
  };
  for (const Program& program : programs) CHECK(calls_of(program, {data(32, {8}), at::zeros({32, 4}, at::kLong)}) <= 7);
  for (const Program& program : {programs[0], programs[1]})
    check_bits(program, [&](int64_t rows) { return Tensors{data(rows, {8}), at::ones({rows, 4}, at::kLong)}; });
}

TEST_CASE("decompose: nothing is known of inputs, of what may change, and behind other operators") {
  const ErrorConfig config = config_of(16);
  constexpr size_t few = 12;
  const auto push = [&](const Tensor& f) { return err::push(f, err::inf, 7, pushing(config)); };
  const auto records = [&](int64_t rows) {
    Tensor f = at::zeros({rows, 4}, at::kLong);
    for (int64_t i = 1; i < 5; ++i) f = err::push(f, err::nan, i, pushing(config, at::rand({rows}) < 0.5));
    return Tensors{f};
  };
  const Tensors zeros{at::zeros({32, 4}, at::kLong)};
  SUBCASE("an input") {
    const Program program = [&](const Tensors& in) { return Tensors{push(in[0])}; };
    CHECK(calls_of(program, zeros) > few);
    CHECK(calls_of(program, zeros) <= 40);
    check_bits(program, records);
  }
  SUBCASE("a branch") {
    const Program program = [&](const Tensors& in) {
      const Tensor none = at::zeros_like(in[0]), taken = at::eq(at::select(in[0], 1, 0), 0);
      return Tensors{push(at::where(at::unsqueeze(taken, 1), none, in[0]))};
    };
    CHECK(calls_of(program, zeros) > few);
    check_bits(program, records);
  }
  SUBCASE("what an operator of LibTorch made of known records") {
    const Program program = [&](const Tensors& in) {
      const Tensor known = push(at::zeros_like(in[0]));
      return Tensors{push(at::bitwise_or(known, 1 << 22 | 1 << 18 | 3 << 16))};
    };
    CHECK(calls_of(program, zeros) > few);
    check_bits(program, records);
  }
  SUBCASE("a variable that is zero now") {
    Graph graph("variable");
    Tensor held = at::zeros({2, 4}, at::kLong);
    Value* f = graph.add_variable(held);
    Value* pushed =
        add(graph, "triage::push.scalar", {f, integer(2), integer(7), integer(3), integer(16), integer(24)});
    graph.set_outputs({pushed});
    const Graph plain = decompose(graph);
    held.copy_(records(2)[0]);
    CHECK(same_bits(run(graph, {})[0], run(plain, {})[0]));
  }
  SUBCASE("a constant that is no zero, though it compares as one") {
    for (const int64_t bits : {int64_t{0}, int64_t{1} << 31, int64_t{5}}) {
      Graph graph("constant");
      const Tensor words = at::full({2, 8}, bits, at::kLong).to(at::kInt).view(at::kFloat);
      Value* f = graph.add_constant(words);
      Value* z = graph.add_input("m", InputKind::tensor, meta({2}, at::kBool));
      Value* pushed =
          add(graph, "triage::push.where", {f, integer(2), integer(7), integer(3), z, integer(16), integer(24)});
      graph.set_outputs({pushed});
      const Tensors mask{at::ones({2}, at::kBool)};
      CHECK(same_bits(run(graph, mask)[0], run(decompose(graph), mask)[0]));
    }
  }
}

namespace {

/// Operations at random on flags that begin empty, with all that they return and answer.
class RandomProgram {
 public:
  RandomProgram()
      : config_(
            config_of(*rc::gen::elementOf(std::vector<int64_t>{2, 3, 4, 5, 16}),
                      *rc::gen::elementOf(std::vector<at::ScalarType>{at::kLong, at::kInt, at::kFloat, at::kDouble}),
                      *rc::gen::elementOf(policies()))),
        sizes_(*rc::gen::elementOf(std::vector<std::vector<int64_t>>{{}, {5}, {3, 4}})),
        dtype_(*rc::gen::elementOf(std::vector<at::ScalarType>{at::kFloat, at::kDouble, at::kHalf})),
        start_(*rc::gen::inRange(0, 3)),
        steps_(*rc::gen::container<std::vector<int>>(5, rc::gen::inRange(0, 10))) {}

  Tensors operator()(const Tensors& in) const {
    Tensor z = in[0];
    Tensors results;
    Tensor f = start_ == 0   ? err::new_(z, {config_})
               : start_ == 1 ? flag_nan(z, 1, {}, {config_})
                             : flag_nan_and_inf(z, 1, {}, {config_});
    int64_t place = 0;
    for (const int step : steps_) {
      const int64_t location = ++place % 3 * 400;
      switch (step) {
        case 0:
        case 1:
          f = err::push(f, err::overflow, location, pushing(config_, step == 0 ? in[1] : in[2]));
          break;
        case 2:
          f = err::push(f, err::nan, location, pushing(config_));
          break;
        case 3:
          f = err::push(f, in[3], location, pushing(config_));
          break;
        case 4:
          std::tie(z, f) = fix(z, f, location, fixing(config_, 1.5));
          break;
        case 5:
          f = flag_inf(z, location, f, {config_});
          break;
        case 6:
          f = err::merge({f, flag_nan_and_inf(in[0], location, {}, {config_})}, {config_});
          break;
        case 7:
          f = err::clear(f, err::nan);
          break;
        case 8:
          f = err::push(f, err::inf, location, pushing(config_, err::is_err(f)));
          break;
        default:
          results.push_back(f);
      }
    }
    const Tensors answers{z,
                          f,
                          err::is_ok(f),
                          err::has_code(f, err::inf),
                          err::max_severity(f),
                          err::any_err(f),
                          err::take_ok_p(f, in[0]),
                          err::get_first_code(f)};
    results.insert(results.end(), answers.begin(), answers.end());
    return results;
  }

  Tensors inputs(int64_t rows) const {
    const auto mask = [&] {
      return at::rand({rows * 2}).lt(*rc::gen::elementOf(std::vector<double>{0, 0.5, 1})).slice(0, 0, rows * 2, 2);
    };
    return {data(rows, sizes_, dtype_, rows % 2 == 1), mask(), mask(), at::randint(-1, 18, {rows}, at::kLong)};
  }

 private:
  static std::vector<int64_t> policies() {
    std::vector<int64_t> all;
    for (int64_t policy = 0; policy < 64; ++policy)
      if ((policy & 3) != 3) all.push_back(policy);
    return all;
  }

  ErrorConfig config_;
  std::vector<int64_t> sizes_;
  at::ScalarType dtype_;
  int start_;
  std::vector<int> steps_;
};

}  // namespace

TEST_CASE("decompose: graphs of known records have the bits of kernels, at every batch size") {
  CHECK(rc::check([] {
    const RandomProgram program;
    const Graph graph = trace(program, program.inputs(32)), plain = decompose(graph);
    for (const int64_t rows : BATCHES) {
      const Tensors given = program.inputs(rows), expected = run(graph, given), got = run(plain, given);
      RC_ASSERT(expected.size() == got.size());
      for (size_t i = 0; i < got.size(); ++i)
        if (!same_bits(expected[i], got[i]))
          RC_FAIL(std::to_string(rows) + " rows, result " + std::to_string(i) + " of\n" + print(graph));
    }
  }));
}
