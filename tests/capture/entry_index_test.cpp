// Many graphs of one function: which of them serves a call, and that calls never look at all of them.
#include "runtime/graph/memory.h"
#include "tests/capture/script.h"

#include <doctest/doctest.h>
#include <triage/compiler_config.h>

#include <algorithm>
#include <atomic>
#include <thread>

using namespace triage;
using namespace triage::test;
using capture::Compiled;
using capture::Recorder;

namespace {

class Unlimited {
 public:
  Unlimited() : before_(get_compiler_config()) {
    CompilerConfig config = before_;
    config.recompile_limit = config.accumulated_recompile_limit = 1'000'000;
    set_compiler_config(config);
  }
  ~Unlimited() { set_compiler_config(before_); }

 private:
  CompilerConfig before_;
};

/// Every graph multiplies by another number: that of the call which captured it. `reads` names the sizes that it holds
/// fast.
struct Numbered {
  using Reads = std::function<std::vector<int64_t>(const at::Tensor&)>;
  explicit Numbered(Reads reads)
      : script(std::make_shared<FunctionScript>([this, reads = std::move(reads)](auto inputs, auto) {
          if (auto* recorder = Recorder::current())
            for (const int64_t dim : reads(inputs[0])) recorder->sizes().read_size(inputs[0], dim);
          return std::vector<at::Tensor>{op("aten::mul", "Scalar", {inputs[0], static_cast<double>(script->calls)})};
        })),
        compiled(script, {}) {}

  double answer(const at::Tensor& z) { return run(compiled, {z})[0].flatten()[0].template item<double>(); }

  /// The number of the newest entry whose guards hold, looked for one by one; 0 where there is none.
  size_t expected(const at::Tensor& z) const {
    const auto entries = compiled.entries();
    for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry)
      if ((*entry)->guards.hold({z})) return (*entry)->number;
    return 0;
  }

  std::shared_ptr<FunctionScript> script;
  Compiled compiled;
};

std::vector<int64_t> all_sizes(const at::Tensor& z) {
  std::vector<int64_t> dims;
  for (int64_t dim = 0; dim < z.dim(); ++dim) dims.push_back(dim);
  return dims;
}

}  // namespace

TEST_CASE("of many graphs each serves its own sizes") {
  const Unlimited unlimited;
  Numbered sized(all_sizes);
  for (int64_t size = 1; size <= 200; ++size) CHECK(sized.answer(at::ones({size})) == static_cast<double>(size));
  CHECK(sized.compiled.entries().size() == 200);
  for (int64_t size : {1, 2, 31, 32, 33, 100, 192, 193, 200})
    CHECK(sized.answer(at::ones({size})) == static_cast<double>(size));
  CHECK(sized.script->calls == 200);
}

TEST_CASE("the newest graph that fits serves, however many came after it") {
  const Unlimited unlimited;
  bool general = false;
  Numbered sized([&](const at::Tensor& z) { return general ? std::vector<int64_t>{} : all_sizes(z); });
  for (int64_t size = 1; size <= 20; ++size) sized.answer(at::ones({size}));
  general = true;
  CHECK(sized.answer(at::ones({1000})) == 21);  // fits every vector from now on
  general = false;
  for (int64_t size = 1; size <= 20; ++size) sized.answer(at::ones({2, size}));
  CHECK(sized.answer(at::ones({3})) == 21);
  CHECK(sized.answer(at::ones({2, 3})) == 24);
  CHECK(sized.script->calls == 41);
}

TEST_CASE("what guards ask besides sizes is asked of what the index finds") {
  const Unlimited unlimited;
  Numbered sized(all_sizes);
  for (int64_t size = 1; size <= 20; ++size) sized.answer(at::ones({size}));
  CHECK(sized.answer(at::ones({3}, at::kDouble)) == 21);
  CHECK(sized.answer(at::ones({3}).requires_grad_()) == 22);
  {
    const at::NoGradGuard no_grad;
    CHECK(sized.answer(at::ones({3})) == 23);
    CHECK(sized.answer(at::ones({3})) == 23);
  }
  CHECK(sized.answer(at::ones({3})) == 3);
}

TEST_CASE("graphs of several forms are found as if all were looked at one by one") {
  const Unlimited unlimited;
  // By the last size the script decides what else it reads.
  Numbered sized([](const at::Tensor& z) {
    std::vector<int64_t> dims = {z.dim() - 1};
    if (z.dim() > 1 && z.size(-1) % 2 == 0) dims.push_back(0);
    return dims;
  });
  for (int64_t step = 0; step < 400; ++step) {
    const int64_t rows = step * 7 % 5 + 1, columns = step * step % 23 + 1;
    const at::Tensor z = step % 3 == 0 ? at::ones({columns}) : at::ones({rows, columns});
    const size_t expected = sized.expected(z);
    const int calls = sized.script->calls;
    const double answer = sized.answer(z);
    if (expected > 0) {
      CHECK(answer == static_cast<double>(expected));
      CHECK(sized.script->calls == calls);
    } else {
      CHECK(sized.script->calls == calls + 1);
    }
  }
  CHECK(sized.compiled.entries().size() > 16);
}

TEST_CASE("[threads] graphs are found while others are captured") {
  const Unlimited unlimited;
  auto fn = std::make_shared<FunctionScript>([](auto inputs, auto) {
    if (auto* recorder = Recorder::current()) recorder->sizes().read_size(inputs[0], 0);
    return std::vector<at::Tensor>{op_add(inputs[0], inputs[0])};
  });
  Compiled compiled(fn, {});
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 300; ++i) {
        const at::Tensor z = at::full({(i * (t + 1)) % 100 + 1}, 3.0);
        if (!run(compiled, {z})[0].equal(z + z)) ++wrong;
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(fn->calls <= 100);
  CHECK(static_cast<int>(compiled.entries().size()) == fn->calls);
}

TEST_CASE("what a cache keeps is counted") {
  const Unlimited unlimited;
  Numbered sized(all_sizes);
  CHECK(sized.compiled.statistics().graphs == 0);
  CHECK(sized.compiled.statistics().bytes == 0);
  sized.answer(at::ones({1}));
  const CacheStatistics one = sized.compiled.statistics();
  CHECK(one.graphs == 1);
  CHECK(one.retired == 0);
  CHECK(one.bytes > sizeof(capture::CacheEntry) + sizeof(graph::Graph));
  CHECK(one.bytes < 10'000);
  for (int64_t size = 2; size <= 50; ++size) sized.answer(at::ones({size}));
  const CacheStatistics fifty = sized.compiled.statistics();
  CHECK(fifty.graphs == 50);
  CHECK(fifty.bytes == 50 * one.bytes);
  sized.answer(at::ones({7}));
  CHECK(sized.compiled.statistics().bytes == fifty.bytes);
}

namespace {

struct Writing : FunctionScript {
  using FunctionScript::FunctionScript;
  uint64_t writes() const override { return written; }
  uint64_t written = 0;
};

}  // namespace

TEST_CASE("what a script's own writes retired is not found again, and counted as such") {
  const Unlimited unlimited;
  double factor = 2;
  std::shared_ptr<Writing> fn;
  fn = std::make_shared<Writing>([&](auto inputs, auto) {
    if (auto* recorder = Recorder::current())
      recorder->sizes().read_size(inputs[0], 0);
    else
      ++fn->written, factor = 3;
    return std::vector<at::Tensor>{op("aten::mul", "Scalar", {inputs[0], factor})};
  });
  Compiled compiled(fn, {});
  for (int64_t size = 1; size <= 20; ++size) CHECK(run(compiled, {at::ones({size})})[0][0].item<double>() == 2);
  set_stance(Stance::force_eager);
  run(compiled, {at::ones({1})});
  set_stance(Stance::default_stance);
  CHECK(compiled.statistics().graphs == 0);
  CHECK(compiled.statistics().retired == 20);
  for (int pass = 0; pass < 2; ++pass)
    for (int64_t size = 1; size <= 20; ++size) CHECK(run(compiled, {at::ones({size})})[0][0].item<double>() == 3);
  CHECK(fn->calls == 41);
  CHECK(compiled.statistics().graphs == 20);
  CHECK(compiled.statistics().retired == 20);
}

TEST_CASE("graphs that were retired do not count against the limit of graphs") {
  std::shared_ptr<Writing> fn;
  fn = std::make_shared<Writing>([&](auto inputs, auto) {
    if (auto* recorder = Recorder::current())
      recorder->sizes().read_size(inputs[0], 0);
    else
      ++fn->written;
    return std::vector<at::Tensor>{op_relu(inputs[0])};
  });
  Compiled compiled(fn, {});
  for (size_t round = 0; round < 3; ++round) {
    for (int64_t size = 1; size <= 8; ++size) run(compiled, {at::ones({size})});
    CHECK(compiled.statistics().graphs == 8);
    set_stance(Stance::force_eager);
    run(compiled, {at::ones({1})});
    set_stance(Stance::default_stance);
    CHECK(compiled.statistics().graphs == 0);
    CHECK(compiled.statistics().retired == 8 * (round + 1));
  }
}

TEST_CASE("data of constants counts as memory of a graph, that of variables does not") {
  graph::Graph constant("constant"), variable("variable");
  const at::Tensor tensor = at::ones({1000});
  constant.set_outputs({constant.add_constant(tensor, "c")});
  variable.set_outputs({variable.add_variable(tensor, "c")});
  CHECK(graph::bytes(constant) == graph::bytes(variable) + 4000);
}
