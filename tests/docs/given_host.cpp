// The host of docs/embedding.md that gives its policies a tensor, a module and a function.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <torch/csrc/jit/api/module.h>
#include <triage/triage.h>

#include <vector>

TEST_CASE("a host that gives its policies tensors, modules and functions") {
  const at::Tensor means = at::ones({4}), x = at::rand({3, 4});
  torch::jit::Module small("Small");
  small.define("def forward(self, x):\n    return torch.relu(x)\n");
  const char* const source =
      "return policy {fullgraph = true, run = function(x) return small(x - means) * row_norm(x):unsqueeze(1) end}";

  triage::Runtime runtime;
  runtime.define_tensor("means", means);
  runtime.define_module("small", small);
  triage::FunctionOptions options;
  options.pure = true;
  options.shapes = [](const std::vector<triage::graph::TensorMeta>& inputs) {
    return std::vector<triage::graph::TensorMeta>{{at::kFloat, {inputs.at(0).sizes.at(0)}}};
  };
  runtime.define(
      "row_norm", [](const std::vector<at::Tensor>& x) { return std::vector{x.at(0).norm(2, 1)}; }, options);
  const triage::Policy policy = runtime.load_source(source, "given.lua");

  CHECK(policy.run({x})[0].equal((x - means).relu() * x.norm(2, 1).unsqueeze(1)));
}
