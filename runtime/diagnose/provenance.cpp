// Provenance of a captured graph: its nodes are run one by one. Of a TorchScript model: everything is inlined, and an
// observer stands before and after each operation: before, because an operation may write to what it reads.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/jit/ir/ir.h>
#include <triage/provenance.h>

#include <mutex>
#include <unordered_map>

#include "runtime/diagnose/bad_rows.h"
#include "runtime/diagnose/script_graph.h"
#include "runtime/graph/evaluation/evaluate.h"
#include "runtime/graph/output_names.h"

namespace triage {
namespace {

using diagnose::BadKind;
using diagnose::BadRows;
using diagnose::Origins;
using diagnose::Rerun;
using diagnose::Trail;

struct ObservedTensor {
  at::Tensor tensor;
  BadRows bad;
  bool varies = false;  // depends on the inputs
};

/// Reruns of one operation. `run_on` runs it on what it is given for each operand (an ObservedTensor), and says what is
/// bad then.
template <class RunOn>
Rerun reruns_by(const Trail& trail, const RunOn& run_on) {
  Rerun rerun;
  rerun.clean = [&trail, run_on](BadKind kind) {
    return run_on([&](const ObservedTensor& seen) { return trail.cleaned(seen.tensor, seen.varies, kind); });
  };
  rerun.without_inf_of = [&trail, run_on](const std::string& origin) {
    return run_on(
        [&](const ObservedTensor& seen) { return trail.without_inf_of(origin, seen.tensor, seen.bad, seen.varies); });
  };
  return rerun;
}

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
    Origins inf_from;
    if (has_floats) {
      Rerun rerun;
      if (!graph::is_random(node.op)) rerun = reruns(node, varies);
      inf_from = trail_.note_operation(index, describe(node), read, made, rerun);
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

  void remember(const graph::Value* value, const at::Tensor& tensor, bool varies, const Origins& inf_from) {
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

  /// What is bad in the results on operands of which `other` makes others.
  template <class Other>
  BadRows evaluate_on(const graph::Node& node, bool varies, const Other& other) const {
    const auto operand = [&](const graph::Value* value) {
      const ObservedTensor& seen = values_.at(value);
      return value->is_flags ? seen.tensor : other(seen);
    };
    return bad_results(node, graph::evaluate(node, operand), varies);
  }

  Rerun reruns(const graph::Node& node, bool varies) const {
    return reruns_by(trail_, [this, &node, varies](const auto& other) { return evaluate_on(node, varies, other); });
  }

  void collect(const graph::Operand& operand, BadRows& read, bool& varies) const {
    if (const graph::Value* value = operand.value()) {
      const ObservedTensor& seen = values_.at(value);
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
  std::unordered_map<const graph::Value*, ObservedTensor> values_;
};

int64_t samples_of(at::ArrayRef<at::Tensor> inputs) {
  for (const at::Tensor& input : inputs)
    if (input.defined() && input.dim() > 0) return input.size(0);
  throw InputError("provenance: expected an input tensor with the batch as its first dimension, got none.");
}

}  // namespace

Provenance provenance(const graph::Graph& graph, at::ArrayRef<at::Tensor> inputs) {
  if (inputs.size() != graph.inputs().size())
    throw InputError(fmt::format("provenance of graph `{}`: expected {} inputs, params included, got {}.", graph.name(),
                                 graph.inputs().size(), inputs.size()));
  graph::verify(graph);
  at::NoGradGuard no_grad;
  Trail trail(samples_of(inputs));
  GraphWalk walk(graph, inputs, trail);
  for (size_t i = 0; i < graph.nodes().size(); ++i) walk.run(*graph.nodes()[i], i);
  for (size_t i = 0; i < graph.outputs().size(); ++i)
    trail.note_output(graph::output_name(graph.output_names(), i), walk.bad_rows_of(graph.outputs()[i]));
  return std::move(trail).finish();
}

namespace {

using torch::jit::Node;
using torch::jit::Value;

/// An operation of the graph.
struct ObservedOperation {
  Producer like;
  std::function<void(torch::jit::Stack&)> run;  // empty where it cannot, or must not, run twice
};

/// Reports of operations carry an even point before, with all arguments, and an odd one after, with the results.
class ProvenanceObserver final : public diagnose::GraphObserver {
 public:
  ProvenanceObserver(Trail& trail, const std::vector<ObservedOperation>& operations)
      : trail_(trail), operations_(operations) {}

  /// A parameter, buffer or constant: it does not depend on the inputs.
  void hold(const std::string& name, const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    note_origin(tensor, trail_.note_held(name, tensor).inf_from);
    fixed_.emplace(tensor.unsafeGetTensorImpl(), tensor);
  }
  void take(const std::string& name, const at::Tensor& tensor) {
    note_origin(tensor, trail_.note_input(name, tensor).inf_from);
  }

  void observe(int64_t point, at::ArrayRef<c10::IValue> values) override {
    std::lock_guard lock(mutex_);  // a model may fork
    const auto index = static_cast<size_t>(point / 2);
    if (point % 2 == 0)
      before(index, values);
    else
      after(index, values);
  }

 private:
  void before(size_t index, at::ArrayRef<c10::IValue> arguments) {
    Read read;
    each_tensor(arguments, [&](const at::Tensor& tensor) {
      const ObservedTensor seen = look_at(tensor);
      read.varies |= seen.varies;
      read.bad.add(seen.bad);
    });
    if (read.bad.is_bad() && operations_.at(index).run)  // copied now: the operation may write to its arguments
      read.arguments = mapped(arguments, [&](const at::Tensor& tensor) {
        ObservedTensor seen = look_at(tensor);
        seen.tensor = tensor.clone();
        return read.copies.insert_or_assign(seen.tensor.unsafeGetTensorImpl(), seen).first->second.tensor;
      });
    read_[index] = std::move(read);
  }

  void after(size_t index, at::ArrayRef<c10::IValue> results) {
    const Read& read = read_.at(index);
    bool floats = false;
    BadRows bad;
    each_tensor(results, [&](const at::Tensor& tensor) {
      floats |= tensor.is_floating_point() || tensor.is_complex();
      bad.add(trail_.bad_rows(tensor, read.varies));
      if (!read.varies) fixed_.emplace(tensor.unsafeGetTensorImpl(), tensor);
    });
    if (!floats) return;
    const ObservedOperation& operation = operations_.at(index);
    Rerun rerun;
    if (operation.run && read.bad.is_bad()) rerun = reruns(operation, read);
    const Origins inf_from = trail_.note_operation(index, operation.like, read.bad, bad, rerun);
    each_tensor(results, [&](const at::Tensor& tensor) { note_origin(tensor, inf_from); });
  }

  bool varies(const at::Tensor& tensor) const { return fixed_.count(tensor.unsafeGetTensorImpl()) == 0; }

  ObservedTensor look_at(const at::Tensor& tensor) const {
    ObservedTensor seen{tensor, {}, varies(tensor)};
    seen.bad = trail_.bad_rows(tensor, seen.varies);
    const auto origin = origins_.find(tensor.unsafeGetTensorImpl());
    if (seen.bad.has(diagnose::is_inf) && origin != origins_.end()) seen.bad.inf_from = origin->second.second;
    return seen;
  }

  void note_origin(const at::Tensor& tensor, const Origins& inf_from) {
    if (inf_from.empty())
      origins_.erase(tensor.unsafeGetTensorImpl());
    else
      origins_[tensor.unsafeGetTensorImpl()] = {tensor, inf_from};
  }

  struct Read {
    BadRows bad;
    bool varies = false;
    torch::jit::Stack arguments;  // copies, for more runs; empty where nothing bad was read
    std::unordered_map<const c10::TensorImpl*, ObservedTensor> copies;
  };

  /// The arguments, with what `other` makes of each tensor.
  template <class Other>
  static torch::jit::Stack mapped(at::ArrayRef<c10::IValue> arguments, const Other& other) {
    torch::jit::Stack stack;
    for (const c10::IValue& argument : arguments) {
      if (argument.isTensor() && argument.toTensor().defined()) {
        stack.emplace_back(other(argument.toTensor()));
      } else if (argument.isTensorList()) {
        std::vector<at::Tensor> items = argument.toTensorVector();
        for (at::Tensor& item : items) item = other(item);
        stack.emplace_back(std::move(items));
      } else {
        stack.push_back(argument);
      }
    }
    return stack;
  }

  /// What is bad in the results on arguments of which `other` makes others.
  template <class Other>
  BadRows run_on(const ObservedOperation& operation, const Read& read, const Other& other) const {
    torch::jit::Stack stack = mapped(read.arguments, [&](const at::Tensor& copy) {
      return other(read.copies.at(copy.unsafeGetTensorImpl())).clone();
    });
    operation.run(stack);
    BadRows bad;
    each_tensor(stack, [&](const at::Tensor& tensor) { bad.add(trail_.bad_rows(tensor, read.varies)); });
    return bad;
  }

  Rerun reruns(const ObservedOperation& operation, const Read& read) const {
    return reruns_by(trail_, [this, &operation, &read](const auto& other) { return run_on(operation, read, other); });
  }

  template <typename Visit>
  static void each_tensor(at::ArrayRef<c10::IValue> values, const Visit& visit) {
    for (const c10::IValue& value : values) diagnose::for_each_tensor(value, visit);
  }

  Trail& trail_;
  const std::vector<ObservedOperation>& operations_;
  std::mutex mutex_;
  std::unordered_map<size_t, Read> read_;
  // What does not depend on the inputs; kept alive, so that their addresses stay theirs.
  std::unordered_map<const c10::TensorImpl*, at::Tensor> fixed_;
  std::unordered_map<const c10::TensorImpl*, std::pair<at::Tensor, Origins>> origins_;  // of Inf
};

ObservedOperation watched(Node& node) {
  const torch::jit::Operator* op = node.maybeOperator();
  const bool runs_again = op && !node.isNondeterministic() && !node.schema().is_vararg();
  if (!runs_again) return {diagnose::described(node), {}};
  return {diagnose::described(node), [run = node.getOperation()](torch::jit::Stack& stack) mutable { run(stack); }};
}

void watch_block(const diagnose::ScriptGraph& graph, torch::jit::Block* block,
                 std::vector<ObservedOperation>& operations) {
  std::vector<Node*> nodes;
  for (Node* node : block->nodes()) nodes.push_back(node);
  const auto tensors = [](at::ArrayRef<Value*> values) {
    std::vector<Value*> found;
    for (Value* value : values)
      if (diagnose::holds_tensors(*value->type())) found.push_back(value);
    return found;
  };
  for (Node* node : nodes) {
    for (torch::jit::Block* inner : node->blocks()) watch_block(graph, inner, operations);
    if (!diagnose::is_operation(*node)) continue;
    const auto point = static_cast<int64_t>(2 * operations.size());
    operations.push_back(watched(*node));
    {
      torch::jit::WithInsertPoint before(node);
      diagnose::insert_observer(graph, point, node->inputs());
    }
    torch::jit::WithInsertPoint after(node->next());
    diagnose::insert_observer(graph, point + 1, tensors(node->outputs()));
  }
}

void hold_constants(torch::jit::Block* block, ProvenanceObserver& watch) {
  for (Node* node : block->nodes()) {
    for (torch::jit::Block* inner : node->blocks()) hold_constants(inner, watch);
    if (node->kind() == torch::jit::prim::Constant && node->hasAttribute(torch::jit::attr::value) &&
        node->kindOf(torch::jit::attr::value) == torch::jit::AttributeKind::t)
      watch.hold("constant", node->t(torch::jit::attr::value));
  }
}

}  // namespace

Provenance provenance(const torch::jit::Module& module, std::vector<c10::IValue> inputs, const std::string& method) {
  at::NoGradGuard no_grad;
  Trail trail(diagnose::count_samples(inputs, "provenance"));
  diagnose::ScriptGraph graph = diagnose::inline_calls(module, method, diagnose::Inline::everything);
  std::vector<ObservedOperation> operations;
  watch_block(graph, graph.graph->block(), operations);
  const auto& arguments = module.get_method(method).function().getSchema().arguments();
  const auto watch = c10::make_intrusive<ProvenanceObserver>(trail, operations);
  for (size_t i = 0; i < inputs.size(); ++i)
    diagnose::for_each_tensor(inputs[i], [&](const at::Tensor& tensor) {
      watch->take(i + 1 < arguments.size() ? arguments[i + 1].name() : std::to_string(i), tensor);
    });
  for (const auto& entry : module.named_parameters()) watch->hold(entry.name, entry.value);
  for (const auto& entry : module.named_buffers()) watch->hold(entry.name, entry.value);
  hold_constants(graph.graph->block(), *watch);
  const c10::IValue output = diagnose::ScriptFunction(module, method, graph)(std::move(inputs), {}, watch);
  BadRows bad;
  diagnose::for_each_tensor(output, [&](const at::Tensor& tensor) { bad.add(trail.bad_rows(tensor, true)); });
  trail.note_output("output", bad);
  return std::move(trail).finish();
}

}  // namespace triage
