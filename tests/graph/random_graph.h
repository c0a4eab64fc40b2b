#pragma once
#include <triage/graph.h>

#include <random>

#include "tests/graph/build.h"

namespace triage::test {

/// A random valid graph over (N, 4) float tensors that runs on any batch size: elementwise chains, reductions, rows,
/// numbers of every kind, several results, lists, dead and repeated code, constants.
inline graph::Graph random_graph(uint64_t seed) {
  std::mt19937_64 random(seed);
  auto pick = [&](size_t count) { return static_cast<size_t>(random() % count); };
  graph::Graph graph("random" + std::to_string(seed % 1000));
  std::vector<graph::Value*> values;
  for (size_t i = 0; i < 1 + pick(3); ++i)
    values.push_back(graph.add_input("x" + std::to_string(i), graph::InputKind::tensor, meta({3, 4})));
  graph::Value* limit = graph.add_input("limit", graph::InputKind::param, meta({}, at::kDouble));
  if (pick(2)) values.push_back(graph.add_constant(at::rand({4})));
  if (pick(2)) values.push_back(graph.add_constant(at::rand({4, 1}).t()));
  auto any = [&] { return values[pick(values.size())]; };
  auto scalar = [&]() -> graph::Operand {
    switch (pick(6)) {
      case 0:
        return integer(static_cast<int64_t>(random() % 7) - 3);
      case 1:
        return number(0.1 * static_cast<double>(random() % 100));
      case 2:
        return c10::IValue(true);
      case 3:
        return number(-0.0);
      case 4:
        return number(std::numeric_limits<double>::infinity());
      default:
        return limit;
    }
  };
  Source source{"random.lua", static_cast<int>(pick(100))};
  for (size_t i = 0, count = pick(25); i < count; ++i) {
    source.line += static_cast<int>(pick(3));
    auto put = [&](const char* name, std::vector<graph::Operand> operands, size_t results = 1) {
      values.push_back(append(graph, name, std::move(operands), results, source)->results.back());
    };
    switch (pick(12)) {
      case 0:
        put("aten::add.Tensor", {any(), any(), integer(2)});
        break;
      case 1:
        put("aten::mul.Tensor", {any(), any()});
        break;
      case 2:
        put("aten::clamp", {any(), none(), scalar()});
        break;
      case 3:
        put("aten::nan_to_num", {any(), number(0.5)});
        break;
      case 4:
        put("aten::tanh", {any()});
        break;
      case 5:
        put("aten::sum.dim_IntList", {any(), sizes({-1}), c10::IValue(true), integer(6)});
        break;
      case 6:
        put("aten::softmax.int", {any(), integer(-1)});
        break;
      case 7:
        put("aten::sub.Scalar", {any(), number(0.75)});
        break;
      case 8:
        put("aten::where.ScalarOther", {add(graph, "aten::isfinite", {any()}), any(), number(0.25)});
        break;
      case 9:
        put("aten::sort", {any(), integer(-1)}, 2);
        values.back() = graph.nodes().back()->results.front();
        break;
      case 10:
        put("aten::mean.dim",
            {add(graph, "aten::stack", {std::vector<graph::Operand>{any()}, integer(0)}), sizes({0})});
        break;
      default:
        put("aten::full_like", {any(), scalar()});
        break;
    }
  }
  std::vector<graph::Value*> outputs;
  for (size_t i = 0; i < 1 + pick(3); ++i) outputs.push_back(any());
  graph.set_outputs(outputs);
  return graph;
}

/// Inputs for `random_graph` with some of everything in them.
inline std::vector<at::Tensor> random_inputs(const graph::Graph& graph, int64_t rows) {
  std::vector<at::Tensor> inputs;
  for (const auto& input : graph.inputs()) {
    if (input.kind == graph::InputKind::param) {
      inputs.push_back(at::scalar_tensor(1.5, at::kDouble));
      inputs.back().unsafeGetTensorImpl()->set_wrapped_number(true);
      continue;
    }
    at::Tensor tensor = at::randn({rows, 4});
    if (rows > 1) {
      tensor[0][1] = std::numeric_limits<float>::quiet_NaN();
      tensor[1][2] = -std::numeric_limits<float>::infinity();
      tensor[1][3] = -0.0f;
    }
    inputs.push_back(tensor);
  }
  return inputs;
}

}  // namespace triage::test
