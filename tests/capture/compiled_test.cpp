#include "runtime/backends/deadline.h"
#include "runtime/graph/visits.h"
#include "tests/capture/script.h"
#include "tests/memory_use.h"

#include <doctest/doctest.h>
#include <triage/compiler_config.h>
#include <triage/location.h>
#include <triage/scoped_config.h>

#include <atomic>
#include <thread>

using namespace triage;
using namespace triage::test;
using capture::Compiled;
using capture::Recorder;

TEST_CASE("T32: one captured graph serves every batch size") {
  auto fn = script([](auto inputs, auto) { return std::vector<at::Tensor>{op_add(op_relu(inputs[0]), inputs[0])}; });
  Compiled compiled(fn, {});
  for (int64_t rows : {3, 0, 1, 2, 31, 32, 33}) {
    at::Tensor z = at::randn({rows, 5});
    CHECK(run(compiled, {z})[0].equal(at::relu(z) + z));
  }
  CHECK(fn->calls == 1);
  CHECK(compiled.entries().size() == 1);
  CHECK(compiled.graph_breaks().empty());
}

TEST_CASE("another rank, dtype, grad mode or requires_grad is another graph") {
  auto fn = script([](auto inputs, auto) { return std::vector<at::Tensor>{op_relu(inputs[0])}; });
  Compiled compiled(fn, {});
  run(compiled, {at::randn({2, 3})});
  CHECK(fn->calls == 1);
  run(compiled, {at::randn({2, 3, 4})});
  CHECK(fn->calls == 2);
  run(compiled, {at::randn({2, 3}, at::kDouble)});
  CHECK(fn->calls == 3);
  run(compiled, {at::randn({2, 3}).requires_grad_()});
  CHECK(fn->calls == 4);
  {
    at::NoGradGuard no_grad;
    run(compiled, {at::randn({2, 3})});
  }
  CHECK(fn->calls == 5);
  run(compiled, {at::randn({7, 3})});
  CHECK(fn->calls == 5);
}

namespace {

ErrorConfig with_slots(int64_t slots) {
  ErrorConfig config;
  config.num_slots = slots;
  return config;
}

/// Adds the number of slots that are configured when it runs.
std::vector<at::Tensor> add_slots(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor>) {
  return {op("aten::add", "Scalar", {inputs[0], get_config().num_slots, 1})};
}

}  // namespace

TEST_CASE("D17: another flags configuration is another graph, and one that comes again has its own") {
  auto fn = script(add_slots);
  Compiled compiled(fn, {});
  const at::Tensor z = at::zeros({2});
  for (int i = 0; i < 100; ++i) {
    for (const int64_t slots : {16, 32}) {
      const ScopedConfig scope(with_slots(slots));
      CHECK(run(compiled, {z})[0].equal(z + slots));
    }
    const ScopedConfig taken_back(with_slots(64));
  }
  CHECK(fn->calls == 2);
  CHECK(compiled.entries().size() == 2);
  CHECK(compiled.statistics().retired == 0);
  ErrorLocation::reset();  // ids that graphs hold mean other places now
  CHECK(run(compiled, {z})[0].equal(z + get_config().num_slots));
  CHECK(fn->calls == 3);
}

TEST_CASE("D17: a configuration that changes on another thread while a graph is captured is in no graph") {
  std::atomic<bool> change{true};
  auto fn = script([&](auto inputs, auto params) {
    const std::vector<at::Tensor> before = add_slots(inputs, params);
    if (change.exchange(false))
      std::thread([] {
        set_config(with_slots(32));
        set_config(with_slots(16));
      }).join();
    return before;
  });
  const ScopedConfig scope(with_slots(16));
  Compiled compiled(fn, {});
  const at::Tensor z = at::zeros({2});
  run(compiled, {z});
  CHECK(compiled.entries().empty());
  for (int i = 0; i < 3; ++i) CHECK(run(compiled, {z})[0].equal(z + 16));
  CHECK(fn->calls == 2);
}

TEST_CASE("D17: threads use the graphs of whatever configuration there is while one changes it") {
  auto fn = script(add_slots);
  Compiled compiled(fn, {});
  const ScopedConfig scope(with_slots(16));
  const at::Tensor z = at::zeros({2});
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      while (!stop) {
        const double slots = run(compiled, {z})[0][0].item().toDouble();
        if (slots != 16 && slots != 32) ++wrong;
      }
    });
  for (int i = 0; i < 500; ++i) set_config(with_slots(i % 2 ? 16 : 32));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  for (const int64_t slots : {32, 16}) {
    set_config(with_slots(slots));
    CHECK(run(compiled, {z})[0].equal(z + slots));
  }
}

TEST_CASE("D17: the report of a call that no graph fits says what happens then") {
  std::vector<std::string> told;
  auto fn = script([](auto inputs, auto) { return std::vector<at::Tensor>{op_relu(inputs[0])}; });
  Compiled::Options options;
  options.inform = [&](const std::string& text) { told.push_back(text); };
  Compiled compiled(fn, options);
  struct Default {
    ~Default() { set_stance(Stance::default_stance); }
  } const restore;
  const at::Tensor flat = at::randn({3}), wide = at::randn({2, 3});
  run(compiled, {flat});
  set_stance(Stance::force_eager);
  run(compiled, {wide});
  CHECK(told.empty());
  set_stance(Stance::eager_on_recompile);
  run(compiled, {wide});
  REQUIRE(told.size() == 1);
  CHECK(told[0].find("Running the script of function test (stance eager_on_recompile)") == 0);
  CHECK(told[0].find("rank mismatch. expected 1, actual 2") != std::string::npos);
  set_stance(Stance::default_stance);
  run(compiled, {wide});
  REQUIRE(told.size() == 2);
  CHECK(told[1].find("Recompiling function test") == 0);
}

TEST_CASE("D17: a size that the script reads is guarded, and the reason of a recompile names it") {
  std::vector<std::string> told;
  auto fn = script([](auto inputs, auto) {
    if (auto* recorder = Recorder::current()) recorder->sizes().read_size(inputs[0], 1);
    return std::vector<at::Tensor>{inputs[0].size(1) > 3 ? op_relu(inputs[0]) : op_add(inputs[0], inputs[0])};
  });
  Compiled::Options options;
  options.inform = [&](const std::string& text) { told.push_back(text); };
  Compiled compiled(fn, options);
  at::Tensor narrow = at::randn({2, 3}), wide = at::randn({2, 4});
  CHECK(run(compiled, {narrow})[0].equal(narrow + narrow));
  CHECK(run(compiled, {wide})[0].equal(at::relu(wide)));
  CHECK(run(compiled, {at::randn({9, 3})}).size() == 1);
  CHECK(fn->calls == 2);
  REQUIRE(told.size() == 1);
  CHECK(told[0].find("Recompiling function test") != std::string::npos);
  CHECK(told[0].find("tensor 'z' size mismatch at index 1. expected 3, actual 4") != std::string::npos);
}

TEST_CASE("a size of an intermediate guards the sizes of the inputs") {
  auto fn = script([](auto inputs, auto) {
    at::Tensor doubled = op_add(inputs[0], inputs[0]);
    if (auto* recorder = Recorder::current()) recorder->sizes().read_size(doubled, 0);
    return std::vector<at::Tensor>{doubled.size(0) == 2 ? op_relu(doubled) : doubled};
  });
  Compiled compiled(fn, {});
  at::Tensor z = at::tensor({-1.0, 1.0, -2.0}).view({3, 1});
  CHECK(run(compiled, {z.slice(0, 0, 2)})[0].equal(at::relu(z.slice(0, 0, 2) * 2)));
  CHECK(run(compiled, {z})[0].equal(z * 2));
  CHECK(fn->calls == 2);
}

TEST_CASE("reading a value runs the script on every call, and fullgraph makes it an error") {
  auto fn = script([](auto inputs, auto) {
    torch::jit::Stack stack = {op("aten::sum", "", {inputs[0], c10::IValue()})};
    capture::call(c10::Dispatcher::singleton().findSchemaOrThrow("aten::item", ""), stack);
    return std::vector<at::Tensor>{stack.back().toScalar().toDouble() > 0 ? op_relu(inputs[0]) : inputs[0]};
  });
  std::string warned;
  Compiled::Options options;
  options.warn = [&](const std::string& text) { warned = text; };
  Compiled compiled(fn, options);
  at::Tensor z = at::tensor({3.0f, -1.0f});
  CHECK(run(compiled, {z})[0].equal(at::relu(z)));
  CHECK(run(compiled, {-z})[0].equal(-z));
  CHECK(fn->calls == 2);
  CHECK(compiled.entries().empty());
  REQUIRE(compiled.graph_breaks().size() == 1);
  CHECK(warned.find("`item` reads a value of a tensor") != std::string::npos);

  options.fullgraph = true;
  Compiled strict(fn, options);
  CHECK_THROWS_AS(run(strict, {z}), GraphBreakError);
}

TEST_CASE("a script that swallows the error of a graph break does not get captured") {
  auto fn = script([](auto inputs, auto) {
    try {
      op("aten::nonzero", "", {inputs[0]});
    } catch (const std::exception&) {
    }
    return std::vector<at::Tensor>{inputs[0]};
  });
  Compiled::Options options;
  options.fullgraph = true;
  Compiled compiled(fn, options);
  CHECK_THROWS_AS(run(compiled, {at::randn({3})}), GraphBreakError);
  CHECK(compiled.entries().empty());
}

TEST_CASE("an in-place operator on an intermediate is captured as its functional form") {
  auto fn = script([](auto inputs, auto) {
    at::Tensor y = op_add(inputs[0], inputs[0]);
    op("aten::mul_", "Scalar", {y, 3.0});
    return std::vector<at::Tensor>{op_add(y, inputs[0])};
  });
  Compiled compiled(fn, {});
  for (int64_t rows : {2, 5}) {
    at::Tensor z = at::randn({rows, 2});
    CHECK(run(compiled, {z})[0].equal((z + z) * 3.0 + z));
  }
  CHECK(fn->calls == 1);
  for (const auto& node : compiled.entries()[0]->graph->nodes()) CHECK_FALSE(graph::writes(node->op));
}

TEST_CASE("an in-place operator keeps the dtype of what it writes to") {
  auto fn = script(
      [](auto inputs, auto) {
        at::Tensor y = op("aten::relu", "", {inputs[0]});
        op("aten::add_", "Tensor", {y, inputs[1], 1});
        return std::vector<at::Tensor>{y};
      },
      {{"z", "w"}, {}, {}});
  Compiled compiled(fn, {});
  at::Tensor z = at::rand({4}), w = at::rand({4}, at::kDouble);
  for (int call = 0; call < 2; ++call) {
    at::Tensor expected = at::relu(z).add_(w), got = run(compiled, {z, w})[0];
    CHECK((got.scalar_type() == at::kFloat));
    CHECK(got.equal(expected));
  }
  CHECK(fn->calls == 1);
}

TEST_CASE("a write to memory that something else looks at is a graph break") {
  auto fn = script([](auto inputs, auto) {
    at::Tensor y = op_relu(inputs[0]);
    at::Tensor view = op("aten::select", "int", {y, 0, 0});
    op("aten::mul_", "Scalar", {y, 2.0});
    return std::vector<at::Tensor>{op_add(y, view)};
  });
  Compiled compiled(fn, {});
  at::Tensor z = at::rand({2, 2});
  at::Tensor y = at::relu(z) * 2;
  CHECK(run(compiled, {z})[0].equal(y + y[0]));
  REQUIRE(compiled.graph_breaks().size() == 1);
  CHECK(compiled.graph_breaks()[0].find("shares its memory") != std::string::npos);
}

TEST_CASE("what a write would be seen by does not depend on when garbage is collected") {
  for (const bool kept : {true, false}) {
    CAPTURE(kept);
    auto fn = script([kept](auto inputs, auto) {
      at::Tensor y = op_relu(inputs[0]);
      at::Tensor view = op("aten::select", "int", {y, 0, 0});
      at::Tensor sum = op_add(y, view);
      if (!kept) view.reset();
      op("aten::mul_", "Scalar", {y, 2.0});
      return std::vector<at::Tensor>{op_add(y, sum)};
    });
    Compiled compiled(fn, {});
    const at::Tensor z = at::rand({2, 2}), y = at::relu(z);
    for (int call = 0; call < 2; ++call) CHECK(run(compiled, {z})[0].equal(y * 2 + (y + y[0])));
    CHECK(compiled.graph_breaks().size() == 1);
  }
}

TEST_CASE("a capture takes no more memory than the script by itself") {
  auto fn = script([](auto inputs, auto) {
    at::Tensor y = op_relu(inputs[0]);
    for (int i = 0; i < 40; ++i) y = op_relu(op_add(y, y));
    return std::vector<at::Tensor>{y};
  });
  Compiled compiled(fn, {});
  test::CountedTensorMemory memory;
  const at::Tensor z = at::rand({256, 256});
  const size_t before = memory.now();
  memory.begin();
  CHECK(run(compiled, {z})[0].sizes() == z.sizes());
  CHECK(compiled.entries().size() == 1);
  CHECK(memory.highest() - before < 3 * z.nbytes() + 1024);  // of the 81 results two at a time, and the output
}

TEST_CASE("a policy cannot write to an input of the host") {
  auto fn = script([](auto inputs, auto) {
    op("aten::zero_", "", {inputs[0]});
    return std::vector<at::Tensor>{inputs[0]};
  });
  Compiled compiled(fn, {});
  at::Tensor z = at::ones({3});
  CHECK_THROWS_SAYING(Error, run(compiled, {z}), "would write to an input");
  CHECK(z.equal(at::ones({3})));
}

TEST_CASE("an output shares no memory with an input, unless it is that input") {
  auto view = script([](auto inputs, auto) {
    return std::vector<at::Tensor>{op("aten::select", "int", {inputs[0], 0, 0})};
  });
  auto same = script([](auto inputs, auto) { return std::vector<at::Tensor>{inputs[0]}; });
  Compiled views(view, {}), identity(same, {});
  at::Tensor z = at::randn({2, 3});
  for (int call = 0; call < 2; ++call) {
    CHECK_FALSE(run(views, {z})[0].is_alias_of(z));
    CHECK(run(identity, {z})[0].is_same(z));
  }
}

TEST_CASE("params are inputs of the graph: another value needs no new graph") {
  auto fn = script(
      [](auto inputs, auto params) {
        return std::vector<at::Tensor>{op("aten::mul", "Tensor", {inputs[0], params[0]})};
      },
      {{"z"}, {}, {{"k", 2.0}}});
  Compiled compiled(fn, {});
  at::Tensor z = at::randn({3}, at::kHalf);
  for (double k : {2.0, 3.5, -1.0}) {
    at::Tensor param = at::scalar_tensor(k, at::kDouble);
    param.unsafeGetTensorImpl()->set_wrapped_number(true);
    at::Tensor got = run(compiled, {z}, {param})[0];
    CHECK((got.scalar_type() == at::kHalf));  // a wrapped number does not promote
    CHECK(got.equal(z * k));
  }
  CHECK(fn->calls == 1);
}

TEST_CASE("random operators draw as in eager, and a draw inside a branch is a break") {
  auto fn = script([](auto inputs, auto) {
    at::Tensor a = op("aten::rand_like", "",
                      {inputs[0], c10::IValue(), c10::IValue(), c10::IValue(), c10::IValue(), c10::IValue()});
    at::Tensor b = op("aten::rand_like", "",
                      {inputs[0], c10::IValue(), c10::IValue(), c10::IValue(), c10::IValue(), c10::IValue()});
    return std::vector<at::Tensor>{op_add(a, b)};
  });
  Compiled compiled(fn, {});
  at::Tensor z = at::zeros({4});
  run(compiled, {z});
  at::manual_seed(5);
  at::Tensor first = at::rand_like(z);
  at::Tensor expected = first + at::rand_like(z);
  at::manual_seed(5);
  CHECK(run(compiled, {z})[0].equal(expected));
  CHECK(fn->calls == 1);
}

TEST_CASE("arithmetic on flags is an error that says what to do") {
  auto fn = script([](auto inputs, auto) {
    at::Tensor f = op("triage::new", "", {inputs[0], 16, at::kLong});
    return std::vector<at::Tensor>{op("aten::add", "Scalar", {f, 1, 1})};
  });
  Compiled compiled(fn, {});
  CHECK_THROWS_SAYING(Error, run(compiled, {at::randn({2, 2})}), "arithmetic on a flags tensor");
}

TEST_CASE("data that flags select is data") {
  auto fn = script([](auto inputs, auto) {
    at::Tensor f = op("triage::new", "", {inputs[0], 16, at::kLong});
    return std::vector<at::Tensor>{op_add(op("triage::take_ok_p", "", {f, inputs[0], 0.0}), inputs[0])};
  });
  Compiled compiled(fn, {});
  run(compiled, {at::randn({2, 2})});
  CHECK(compiled.flags_outputs() == std::vector<bool>{false});
}

TEST_CASE("outputs made by flags operations are known as flags") {
  auto fn = script([](auto inputs, auto) {
    at::Tensor f = op("triage::new", "", {inputs[0], 16, at::kLong});
    return std::vector<at::Tensor>{inputs[0], op("aten::clone", "", {f, c10::IValue()})};
  });
  Compiled compiled(fn, {});
  run(compiled, {at::randn({2, 2})});
  CHECK(compiled.flags_outputs() == std::vector<bool>{false, true});
}

TEST_CASE("beyond the recompile limit the script runs, and entries that match are still used") {
  std::vector<std::string> warnings;
  auto fn = script([](auto inputs, auto) {
    if (auto* recorder = Recorder::current()) recorder->sizes().read_size(inputs[0], 0);
    return std::vector<at::Tensor>{op_relu(inputs[0])};
  });
  Compiled::Options options;
  options.recompile_limit = 2;
  options.warn = [&](const std::string& text) { warnings.push_back(text); };
  Compiled compiled(fn, options);
  for (int64_t rows : {1, 2, 3, 4, 1}) run(compiled, {at::randn({rows})});
  CHECK(compiled.entries().size() == 2);
  CHECK(fn->calls == 4);
  CHECK(warnings.size() == 1);
}

TEST_CASE("[threads] one function is captured once by many threads") {
  auto fn = script([](auto inputs, auto) { return std::vector<at::Tensor>{op_add(inputs[0], inputs[0])}; });
  Compiled compiled(fn, {});
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        at::Tensor z = at::full({3, 2}, t + i);
        if (!run(compiled, {z})[0].equal(z + z)) ++wrong;
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(fn->calls == 1);
}

TEST_CASE("prepare captures for shapes in use before a call comes") {
  auto fn = script([](auto inputs, auto) { return std::vector<at::Tensor>{op_relu(inputs[0])}; });
  Compiled compiled(fn, {});
  compiled.prepare({{{4, 2}, at::kFloat, at::kCPU, false}}, {});
  CHECK(fn->calls == 1);
  run(compiled, {at::randn({9, 2})});
  CHECK(fn->calls == 1);
  REQUIRE(compiled.shapes_in_use().size() == 1);
  CHECK(compiled.shapes_in_use()[0][0].sizes == std::vector<int64_t>{4, 2});
}

TEST_CASE("gradients flow through a captured graph") {
  auto fn = script([](auto inputs, auto) {
    return std::vector<at::Tensor>{op("aten::mul", "Tensor", {inputs[0], op_relu(inputs[0])})};
  });
  Compiled compiled(fn, {});
  for (int call = 0; call < 2; ++call) {
    at::Tensor z = at::tensor({-1.0, 2.0}).requires_grad_();
    run(compiled, {z})[0].sum().backward();
    CHECK(z.grad().equal(at::tensor({0.0, 4.0})));
  }
}

TEST_CASE("a call that the script answers does not ask where the script is written, which reads its source") {
  auto fn = script([](auto inputs, auto) {
    capture::graph_break(capture::Break::requested, "asked", "");
    return std::vector<at::Tensor>{op_relu(inputs[0])};
  });
  Compiled compiled(fn, {});
  for (int i = 0; i < 8; ++i) run(compiled, {at::randn({2, 3})});
  const int before = fn->definitions;
  for (int i = 0; i < 200; ++i) run(compiled, {at::randn({2, 3})});
  CHECK(fn->calls == 208);
  CHECK(fn->definitions == before);
}

namespace {

/// Walks the graph for so long as any test could wait for, and then compiles it.
std::unique_ptr<Executable> compile_slowly(const graph::Graph& graph, const std::vector<at::Tensor>& examples) {
  constexpr uint64_t very_many = 20'000'000'000;
  uint64_t values = 0;
  for (const uint64_t end = graph::visits + very_many; graph::visits < end;)
    for (const auto& node : graph.nodes())
      for (const auto& operand : node->operands) values += operand.value() != nullptr;
  CHECK(values > 0);
  return find_backend("eager")(graph, examples);
}

}  // namespace

TEST_CASE(
    "a compile that takes longer than a call of the script may is given up: the graph runs with eager, and that is "
    "said") {
  auto fn = script([](auto inputs, auto) { return std::vector<at::Tensor>{op_add(op_relu(inputs[0]), inputs[0])}; });
  std::vector<std::string> warnings;
  Compiled::Options options;
  options.compile_with = compile_slowly;
  options.backend = "slow";
  options.compile_seconds = 0.05;
  options.warn = [&](const std::string& text) { warnings.push_back(text); };
  Compiled compiled(fn, options);
  const at::Tensor z = at::randn({3, 4});
  for (int call = 0; call < 3; ++call) CHECK(run(compiled, {z})[0].equal(at::relu(z) + z));
  CHECK(fn->calls == 1);
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find("longer than the 0.05 s that the limits allow") != std::string::npos);

  options.fullgraph = true;
  Compiled strict(script([](auto inputs, auto) { return std::vector<at::Tensor>{op_relu(inputs[0])}; }), options);
  CHECK_THROWS_SAYING(Error, run(strict, {z}), "longer than the 0.05 s that the limits allow");
}

TEST_CASE("a compile behind which the deadline of the caller passes ends there") {
  const Deadline end(Deadline::in(0.05));
  Compiled::Options options;
  options.compile_with = compile_slowly;
  options.backend = "slow";
  Compiled compiled(script([](auto inputs, auto) { return std::vector<at::Tensor>{op_relu(inputs[0])}; }), options);
  CHECK_THROWS_SAYING(LimitError, run(compiled, {at::randn({3, 4})}), "ended before its graph was compiled");
}
