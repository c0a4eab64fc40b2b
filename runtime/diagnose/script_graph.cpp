#include "runtime/diagnose/script_graph.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/frontend/source_range.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <triage/error.h>

#include <optional>

namespace triage::diagnose {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::GraphFunction;
using torch::jit::Node;
using torch::jit::Stack;
using torch::jit::Symbol;
using torch::jit::Value;

/// triage::observe(observer, point, values...). Its effects are conservative, so that no pass of LibTorch drops it,
/// moves it past a write, or merges two.
void observe(Stack& stack) {
  const auto count = static_cast<size_t>(torch::jit::pop(stack).toInt());
  const at::ArrayRef<c10::IValue> arguments(stack.data() + (stack.size() - count), count);
  auto holder = arguments[0].toCapsule();
  auto* observer = dynamic_cast<GraphObserver*>(holder.get());
  TORCH_CHECK(observer, "scripts cannot call triage::observe");
  observer->observe(arguments[1].toInt(), arguments.slice(2));
  torch::jit::drop(stack, count);
}

const torch::jit::RegisterOperators register_observe({torch::jit::Operator("triage::observe(...) -> ()", observe,
                                                                           c10::AliasAnalysisKind::CONSERVATIVE)});

/// Models that were traced carry scopes already: these are replaced.
void set_scope(Node* node, const torch::jit::ScopePtr& scope) {
  node->setScope(scope);
  for (Block* block : node->blocks())
    for (Node* inner : block->nodes()) set_scope(inner, scope);
}

class Inliner {
 public:
  Inliner(ScriptGraph& graph, Inline what, const OnReturn& on_return)
      : graph_(graph), what_(what), on_return_(on_return), self_(graph.graph->inputs().at(0)) {}

  void inline_block(Block* block) {
    std::vector<Node*> nodes;
    for (Node* node : block->nodes()) nodes.push_back(node);
    for (Node* node : nodes) inline_node(node);
  }

 private:
  void inline_node(Node* node) {
    switch (node->kind()) {
      case torch::jit::prim::CallMethod:
        inline_method(node);
        break;
      case torch::jit::prim::CallFunction:
        if (what_ == Inline::everything) inline_function(node);
        break;
      default:
        for (Block* block : node->blocks()) inline_block(block);
    }
  }

  void inline_method(Node* call) {
    const auto type = call->input(0)->type()->cast<c10::ClassType>();
    const std::optional<std::string> path = module_path(call->input(0));
    torch::jit::Function* method = type ? type->findMethod(call->s(torch::jit::attr::name)) : nullptr;
    const bool wanted = method && (path || what_ == Inline::everything);
    GraphFunction* callee = wanted ? torch::jit::tryToGraphFunction(*method) : nullptr;
    if (callee) {
      replace(call, *callee, call->inputs(), path);
    } else if (path && on_return_) {
      torch::jit::WithInsertPoint after(call->next());
      on_return_(graph_, *path, call->outputs());
    }
  }

  void inline_function(Node* call) {
    const auto type = call->input(0)->type()->cast<c10::FunctionType>();
    GraphFunction* callee = type ? torch::jit::tryToGraphFunction(*type->function()) : nullptr;
    if (callee) replace(call, *callee, call->inputs().slice(1), std::nullopt);
  }

  /// `path`: of the submodule, where it is one that is called. Nodes of its own code carry the path as their scope.
  void replace(Node* call, GraphFunction& callee, at::ArrayRef<Value*> arguments,
               const std::optional<std::string>& path) {
    callee.ensure_defined();
    Node* before = call->prev();
    std::vector<Node*> inserted;
    {
      torch::jit::WithInsertPoint here(call);  // looks at `call` once more where it ends
      const std::vector<Value*> results = torch::jit::insertGraph(*graph_.graph, *callee.graph(), arguments);
      for (Node* node = before->next(); node != call; node = node->next()) inserted.push_back(node);
      const torch::jit::ScopePtr scope = path ? scope_of(*path) : call->scope();
      for (Node* node : inserted) set_scope(node, scope);
      if (path && on_return_) on_return_(graph_, *path, results);
      for (size_t i = 0; i < results.size(); ++i) call->output(i)->replaceAllUsesWith(results[i]);
    }
    call->destroy();
    for (Node* node : inserted) inline_node(node);
  }

  torch::jit::ScopePtr scope_of(const std::string& path) const {
    auto root = graph_.graph->current_scope();
    return path.empty() ? root : root->push(Symbol::scope(path));
  }

  /// Follows `self.encoder.layers` back to the model itself; empty where the object is no part of it that is known.
  std::optional<std::string> module_path(const Value* value) const {
    if (value == self_) return "";
    const Node* node = value->node();
    if (node->kind() != torch::jit::prim::GetAttr) return std::nullopt;
    const auto type = value->type()->cast<c10::NamedType>();
    const auto class_type = value->type()->cast<c10::ClassType>();
    if (!type || (class_type && !class_type->is_module())) return std::nullopt;
    std::optional<std::string> parent = module_path(node->input(0));
    if (!parent) return std::nullopt;
    const std::string& name = node->s(torch::jit::attr::name);
    return parent->empty() ? name : *parent + '.' + name;
  }

  ScriptGraph& graph_;
  Inline what_;
  const OnReturn& on_return_;
  const Value* self_;
};

GraphFunction& graph_function(const torch::jit::Module& module, const std::string& method) {
  const auto found = module.find_method(method);
  if (!found) throw InputError("the TorchScript model has no method `" + method + "`; name one that it has.");
  GraphFunction* function = torch::jit::tryToGraphFunction(found->function());
  if (!function) throw InputError("the method `" + method + "` of the TorchScript model has no graph.");
  function->ensure_defined();
  return *function;
}

}  // namespace

ScriptGraph inline_calls(const torch::jit::Module& module, const std::string& method, Inline what,
                         const OnReturn& on_return) {
  ScriptGraph result;
  result.graph = graph_function(module, method).graph()->copy();
  result.observer = result.graph->addInput("triage_observer");
  result.observer->setType(c10::CapsuleType::get());
  for (Node* node : result.graph->nodes()) set_scope(node, result.graph->current_scope());
  Inliner(result, what, on_return).inline_block(result.graph->block());
  return result;
}

void insert_observer(const ScriptGraph& graph, int64_t point, at::ArrayRef<Value*> values) {
  Graph& target = *graph.graph;
  std::vector<Value*> inputs{graph.observer, target.insertConstant(point)};
  inputs.insert(inputs.end(), values.begin(), values.end());
  target.insertNode(target.create(Symbol::fromQualString("triage::observe"), inputs, /*num_outputs=*/0));
}

std::string path_of(Node& node) {
  const auto scope = node.scope();
  return scope->isBlank() || scope->isRoot() ? std::string() : scope->name().toUnqualString();
}

bool holds_tensors(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::TensorType) return true;
  if (type.kind() != c10::TypeKind::ListType && type.kind() != c10::TypeKind::TupleType &&
      type.kind() != c10::TypeKind::OptionalType && type.kind() != c10::TypeKind::DictType)
    return false;
  for (const auto& inner : type.containedTypes())
    if (holds_tensors(*inner)) return true;
  return false;
}

bool is_operation(const Node& node) {
  if (!node.blocks().empty()) return false;
  const bool is_call = node.kind() == torch::jit::prim::CallMethod || node.kind() == torch::jit::prim::CallFunction;
  if (node.kind().is_prim() && !is_call) return false;
  for (const Value* output : node.outputs())
    if (holds_tensors(*output->type())) return true;
  return false;
}

Source source_of(const Node& node) {
  const auto place = node.sourceRange().file_line_col();
  if (!place) return {};
  return {std::get<0>(*place), static_cast<int>(std::get<1>(*place))};
}

Producer described(Node& node) {
  return {Producer::Kind::operation, operation_name(node), path_of(node), source_of(node), {}, {}, {}};
}

std::string operation_name(const Node& node) {
  return node.kind() == torch::jit::prim::CallMethod ? node.s(torch::jit::attr::name) : node.kind().toQualString();
}

ScriptFunction::ScriptFunction(const torch::jit::Module& module, const std::string& method, ScriptGraph graph)
    : module_(module),
      method_(method),
      function_(
          std::make_shared<GraphFunction>(c10::QualifiedName("triage.observed"), std::move(graph.graph), nullptr)) {}

c10::IValue ScriptFunction::operator()(std::vector<c10::IValue> inputs, const Kwargs& kwargs,
                                       c10::intrusive_ptr<GraphObserver> observer) const {
  Stack stack = std::move(inputs);
  stack.insert(stack.begin(), module_._ivalue());
  module_.get_method(method_).function().getSchema().checkAndNormalizeInputs(stack, kwargs);
  stack.push_back(c10::IValue::make_capsule(std::move(observer)));
  function_->run(stack);
  return stack.at(0);
}

void for_each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTuple()) {
    for (const c10::IValue& item : value.toTupleRef().elements()) for_each_tensor(item, visit);
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) for_each_tensor(item, visit);
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) for_each_tensor(entry.value(), visit);
  }
}

int64_t count_samples(at::ArrayRef<c10::IValue> inputs, const char* operation) {
  int64_t samples = -1;
  for (const c10::IValue& input : inputs)
    for_each_tensor(input, [&](const at::Tensor& tensor) {
      if (samples < 0 && tensor.dim() > 0) samples = tensor.size(0);
    });
  if (samples < 0)
    throw InputError(std::string(operation) +
                     ": expected an input tensor with the batch as its first dimension, got none.");
  return samples;
}

}  // namespace triage::diagnose
