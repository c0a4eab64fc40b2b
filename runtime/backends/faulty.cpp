#include "runtime/backends/faulty.h"

#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "runtime/backends/aot/aot_eager.h"
#include "runtime/backends/eager.h"
#include "runtime/backends/repro.h"
#include "runtime/graph/passes/uses.h"
#include "runtime/graph/text/describe.h"

namespace triage {
namespace {

using graph::Graph;
using graph::Node;
using graph::Value;

/// "relu", "aten::relu" and "aten::add.Tensor" all name operators.
bool is_named(const Node& node, const std::string& op) {
  const std::string full = graph::op_name(node.op);
  const std::string& qualified = node.op.operator_name().name;
  return full == op || qualified == op || qualified.substr(qualified.find("::") + 2) == op;
}

std::string place(const Source& source) {
  return source.file.empty() ? "" : source.file + ":" + std::to_string(source.line) + ": ";
}

const Node* find(const Graph& graph, const std::string& op) {
  for (const auto& node : graph.nodes())
    if (is_named(*node, op)) return node.get();
  return nullptr;
}

std::unique_ptr<Executable> fail_to_compile(const std::string& op, const Graph& graph,
                                            const std::vector<at::Tensor>& examples) {
  if (const Node* node = find(graph, op))
    throw GraphError(
        fmt::format("{}faulty_compile: {} cannot be compiled, on purpose", place(node->source), graph::describe(*node)),
        node->source);
  return compile_eager(graph, examples);
}

/// The graph up to the operator that fails.
class FailingRun final : public Executable {
 public:
  FailingRun(const Graph& graph, const Node& at, const std::vector<at::Tensor>& examples)
      : message_(fmt::format("{}faulty_run: {} failed, on purpose", place(at.source), graph::describe(at))),
        source_(at.source) {
    Graph before = graph.clone();
    size_t count = 0;
    while (graph.nodes()[count].get() != &at) ++count;
    before.nodes().erase(before.nodes().begin() + static_cast<ptrdiff_t>(count), before.nodes().end());
    before.set_outputs({});
    before_ = compile_eager(before, examples);
  }
  void run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs, const CallContext& call) const override {
    before_->run(inputs, outputs, {call.deadline});
    throw PolicyError(message_, source_);
  }

 private:
  std::unique_ptr<Executable> before_;
  std::string message_;
  Source source_;
};

std::unique_ptr<Executable> fail_to_run(const std::string& op, const Graph& graph,
                                        const std::vector<at::Tensor>& examples) {
  const Node* node = find(graph, op);
  return node ? std::make_unique<FailingRun>(graph, *node, examples) : compile_eager(graph, examples);
}

/// The call that makes a right value wrong.
Node* append_fault(Graph& graph, Value* right, const Source& source) {
  auto& dispatcher = c10::Dispatcher::singleton();
  if (right->meta && right->meta->dtype == at::kBool)
    return graph.append(dispatcher.findSchemaOrThrow("aten::logical_not", ""), {right}, 1, source);
  return graph.append(dispatcher.findSchemaOrThrow("aten::add", "Scalar"),
                      {right, c10::IValue(int64_t{1}), c10::IValue(int64_t{1})}, 1, source);
}

std::unique_ptr<Executable> give_wrong_results(const std::string& op, const Graph& graph,
                                               const std::vector<at::Tensor>& examples) {
  Graph wrong = graph.clone();
  std::vector<graph::NodePtr> nodes;
  nodes.swap(wrong.nodes());
  graph::Replacements replacements;
  for (auto& node : nodes) {
    graph::for_each_use(*node, [&](Value*& value) {
      if (auto found = replacements.find(value); found != replacements.end()) value = found->second;
    });
    Node& call = *node;
    wrong.nodes().push_back(std::move(node));
    if (!is_named(call, op)) continue;
    for (Value* right : call.results) {
      Value* fault = append_fault(wrong, right, call.source)->results[0];
      wrong.edit(fault).meta = right->meta;
      replacements[right] = fault;
    }
  }
  for (Value*& output : wrong.outputs())
    if (auto found = replacements.find(output); found != replacements.end()) output = found->second;
  return compile_eager(wrong, examples);
}

/// `half`, for the halves of a joint graph where gradients are asked for.
Backend with_joint_graph(const std::string& name, const std::string& name_of_half, Backend half) {
  half = with_repro_of_half(std::move(half), name_of_half);
  return [name, half](const Graph& graph, const std::vector<at::Tensor>& examples) {
    const bool gradients =
        c10::GradMode::is_enabled() && std::any_of(examples.begin(), examples.end(),
                                                   [](const at::Tensor& example) { return example.requires_grad(); });
    return gradients ? compile_joint(graph, examples, name, half) : half(graph, examples);
  };
}

}  // namespace

std::optional<Backend> faulty_backend(const std::string& name) {
  if (name.starts_with(kFaultyHalves)) {
    const std::string of_half = "faulty_" + name.substr(std::string(kFaultyHalves).size());
    auto half = faulty_backend(of_half);
    return half ? std::optional(with_joint_graph(name, of_half, std::move(*half))) : std::nullopt;
  }
  using Fault = std::unique_ptr<Executable> (*)(const std::string&, const Graph&, const std::vector<at::Tensor>&);
  static const auto& faults = *new std::unordered_map<std::string, Fault>{
      {"faulty_compile", fail_to_compile}, {"faulty_run", fail_to_run}, {"faulty_result", give_wrong_results}};
  const size_t colon = name.find(':');
  const auto fault = faults.find(name.substr(0, colon));
  if (fault == faults.end()) return std::nullopt;
  std::string op = colon == std::string::npos ? "relu" : name.substr(colon + 1);
  return [op, run = fault->second](const Graph& graph, const std::vector<at::Tensor>& examples) {
    return run(op, graph, examples);
  };
}

}  // namespace triage
