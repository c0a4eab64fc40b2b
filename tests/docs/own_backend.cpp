// The C++ of docs/backends.md, which examples_test.cpp finds here: compiled, and run.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <atomic>

namespace {

// A backend of one's own: counts what runs, and leaves the work to the interpreter.
struct Counting final : triage::Executable {
  std::unique_ptr<triage::Executable> inner;
  std::atomic<int>& calls;
  Counting(std::unique_ptr<triage::Executable> inner, std::atomic<int>& calls)
      : inner(std::move(inner)), calls(calls) {}
  void run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs,
           const triage::CallContext& call) const override {
    ++calls;
    inner->run(inputs, outputs, call);
  }
};

std::atomic<int> calls{0};

}  // namespace

TEST_CASE("D20: the backend of docs/backends.md, written in C++") {
  triage::register_backend("counting", [](const triage::graph::Graph& graph, const std::vector<at::Tensor>& examples) {
    for (const auto& node : graph.nodes())
      if (node->op.operator_name().name == "aten::sort") throw triage::GraphError("counting: cannot sort");
    return std::make_unique<Counting>(triage::find_backend("eager")(graph, examples), calls);
  });
  triage::RuntimeOptions options;
  options.backend = "counting";
  triage::Policy policy = triage::Runtime(options).load_source("return function(z) return z * 2 end", "twice.lua");
  policy.run({at::ones({2})});  // captured: the script's own results
  policy.run({at::ones({2})});
  policy.run({at::ones({3})});
  CHECK(calls == 2);
}
