// Provenance of a captured graph: its nodes are run one by one.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <triage/provenance.h>

#include <unordered_map>

#include "runtime/diagnose/bad_rows.h"
#include "runtime/graph/evaluate.h"

namespace triage {
namespace {

using diagnose::BadKind;
using diagnose::BadRows;
using diagnose::RunClean;
using diagnose::Trail;

struct Seen {
  at::Tensor tensor;
  BadRows bad;
  bool varies = false;  // depends on the inputs
};

class GraphWalk {
 public:
  GraphWalk(const graph::Graph& graph, at::ArrayRef<at::Tensor> inputs, Trail& trail) : trail_(trail) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const graph::Value* value = graph.inputs()[i].value;
      const BadRows bad = trail.note_input(value->name, inputs[i]);
      values_[value] = {inputs[i], value->is_flags ? BadRows{} : bad, /*varies=*/true};
    }
    for (const graph::Constant& constant : graph.constants()) {
      const BadRows bad = trail.note_held(constant.value->name, constant.tensor);
      values_[constant.value] = {constant.tensor, constant.value->is_flags ? BadRows{} : bad, /*varies=*/false};
    }
  }

  void run(const graph::Node& node, size_t index) {
    BadRows read, made;
    bool varies = false;
    for (const graph::Operand& operand : node.operands) collect(operand, read, varies);
    const std::vector<at::Tensor> results =
        graph::evaluate(node, [this](const graph::Value* value) { return values_.at(value).tensor; });
    made = bad_results(node, results, varies);
    bool has_floats = false;
    for (size_t i = 0; i < results.size() && i < node.results.size(); ++i) {
      const graph::Value* value = node.results[i];
      has_floats |= !value->is_flags && results[i].defined() && results[i].is_floating_point();
    }
    std::set<std::string> inf_from;
    if (has_floats) {
      const auto run_clean = [&](BadKind kind) { return bad_results(node, evaluate_clean(node, kind), varies); };
      inf_from = trail_.note_operation(index, describe(node), read, made,
                                       graph::is_random(node.op) ? RunClean() : RunClean(run_clean));
    }
    for (size_t i = 0; i < results.size() && i < node.results.size(); ++i)
      remember(node.results[i], results[i], varies, inf_from);
  }

  const BadRows& bad_rows_of(const graph::Value* value) const { return values_.at(value).bad; }

 private:
  /// Flags are bits, whatever carries them.
  BadRows bad_rows(const graph::Value* value, const at::Tensor& tensor, bool varies) const {
    return value->is_flags ? BadRows{} : trail_.bad_rows(tensor, varies);
  }

  void remember(const graph::Value* value, const at::Tensor& tensor, bool varies,
                const std::set<std::string>& inf_from) {
    BadRows bad = bad_rows(value, tensor, varies);
    if (bad.has(diagnose::is_inf)) bad.inf_from = inf_from;
    values_[value] = {tensor, std::move(bad), varies};
  }

  BadRows bad_results(const graph::Node& node, const std::vector<at::Tensor>& results, bool varies) const {
    BadRows bad;
    for (size_t i = 0; i < results.size() && i < node.results.size(); ++i)
      bad.add(bad_rows(node.results[i], results[i], varies));
    return bad;
  }

  std::vector<at::Tensor> evaluate_clean(const graph::Node& node, BadKind kind) const {
    return graph::evaluate(node, [&](const graph::Value* value) {
      const Seen& seen = values_.at(value);
      return value->is_flags ? seen.tensor : trail_.cleaned(seen.tensor, seen.varies, kind);
    });
  }

  void collect(const graph::Operand& operand, BadRows& read, bool& varies) const {
    if (const graph::Value* value = operand.value()) {
      const Seen& seen = values_.at(value);
      read.add(seen.bad);
      varies |= seen.varies;
    } else if (const auto* items = operand.list()) {
      for (const graph::Operand& item : *items) collect(item, read, varies);
    }
  }

  static Producer describe(const graph::Node& node) {
    return {Producer::Kind::operation, node.op.operator_name().name, {}, node.source, {}, {}, {}};
  }

  Trail& trail_;
  std::unordered_map<const graph::Value*, Seen> values_;
};

int64_t samples_of(at::ArrayRef<at::Tensor> inputs) {
  for (const at::Tensor& input : inputs)
    if (input.defined() && input.dim() > 0) return input.size(0);
  throw InputError("provenance: expected a tensor with the samples in front among the inputs, got none.");
}

}  // namespace

Provenance provenance(const graph::Graph& graph, at::ArrayRef<at::Tensor> inputs) {
  if (inputs.size() != graph.inputs().size())
    throw InputError(fmt::format("provenance of graph `{}`: expected {} inputs, params included, got {}.", graph.name(),
                                 graph.inputs().size(), inputs.size()));
  at::NoGradGuard no_grad;
  Trail trail(samples_of(inputs));
  GraphWalk walk(graph, inputs, trail);
  for (size_t i = 0; i < graph.nodes().size(); ++i) walk.run(*graph.nodes()[i], i);
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const bool named = i < graph.output_names().size() && !graph.output_names()[i].empty();
    trail.note_output(named ? graph.output_names()[i] : fmt::format("out{}", i), walk.bad_rows_of(graph.outputs()[i]));
  }
  return std::move(trail).finish();
}

}  // namespace triage
