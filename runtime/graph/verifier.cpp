#include "runtime/graph/verifier.h"

#include <c10/core/ScalarType.h>
#include <fmt/format.h>
#include <triage/graph.h>

#include <unordered_set>

#include "runtime/graph/argument_type.h"
#include "runtime/graph/contracts.h"
#include "runtime/graph/evaluation/evaluate.h"
#include "runtime/graph/text/describe.h"
#include "runtime/operators/contract.h"

namespace triage::graph {
namespace {

bool is_number(const c10::IValue& value) {
  return value.isInt() || value.isDouble() || value.isBool() || value.isComplexDouble();
}

bool in_range(const c10::IValue& value, int64_t count) {
  return value.isInt() && value.toInt() >= 0 && value.toInt() < count;
}

/// Whether `value` fits an element of the type (list and None aside). LibTorch coerces nothing, and kernels do not
/// check.
bool fits(Kind kind, const c10::IValue& value) {
  switch (kind) {
    case Kind::tensor:
      return is_number(value);  // a wrapped number
    case Kind::number:
      return is_number(value);
    case Kind::integer:
      return value.isInt();
    case Kind::real:
      return value.isDouble();
    case Kind::boolean:
      return value.isBool();
    case Kind::dtype:
      return in_range(value, static_cast<int64_t>(at::ScalarType::NumOptions));
    case Kind::layout:
      return in_range(value, static_cast<int64_t>(at::Layout::NumOptions));
    case Kind::memory_format:
      return in_range(value, static_cast<int64_t>(at::MemoryFormat::NumOptions));
    case Kind::device:
      return value.isDevice();
    case Kind::string:
      return value.isString();
    case Kind::generator:
      return false;
    case Kind::other:
      return true;
  }
  return false;
}

/// The operands and results of one call against its schema.
class CallVerifier {
 public:
  explicit CallVerifier(const Node& node) : node_(node) {}

  void run() const {
    const auto& schema = node_.op.schema();
    if (writes(node_.op)) fail("it writes to an argument; graphs hold the functional form of such calls");
    if (node_.op.operator_name().name.rfind("aten::_reshape_alias", 0) == 0)
      fail("LibTorch does not check whether its strides lead out of the memory; use `aten::reshape`");
    if (node_.operands.size() != schema.arguments().size())
      fail(fmt::format("{} operands, but the schema has {} arguments", node_.operands.size(),
                       schema.arguments().size()));
    for (size_t i = 0; i < node_.operands.size(); ++i) check_operand(schema.arguments()[i], node_.operands[i]);
    check_results();
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw GraphError(fmt::format("{}: {}", describe(node_), what), node_.source);
  }

  [[noreturn]] void refuse(const c10::Argument& argument, const ArgumentType& type, const std::string& came) const {
    fail(fmt::format("argument `{}` expects {}, got {}", argument.name(), type.text(), came));
  }

  void check_results() const {
    size_t tensors = 0, lists = 0;
    for (const auto& result : node_.op.schema().returns()) {
      ArgumentType type = type_of(result);
      if (type.kind != Kind::tensor) fail(fmt::format("it returns {}; values of a graph are tensors", type.text()));
      ++(type.list ? lists : tensors);
    }
    if (lists ? node_.results.size() < tensors : node_.results.size() != tensors)
      fail(fmt::format("{} results, but the schema returns {}{}", node_.results.size(), lists ? "at least " : "",
                       tensors));
  }

  void check_operand(const c10::Argument& argument, const Operand& operand) const {
    ArgumentType type = type_of(argument);
    if (const auto* items = operand.list()) {
      if (!type.list) refuse(argument, type, "a list");
      for (const auto& item : *items) check_item(argument, type, item);
    } else if (const c10::IValue* constant = operand.constant()) {
      check_constant(argument, type, *constant);
    } else if (!operand.value()) {
      fail(fmt::format("argument `{}` is null", argument.name()));
    } else if (type.list || !type.takes_value()) {
      refuse(argument, type, "the tensor " + describe(*operand.value()));
    }
  }

  void check_item(const c10::Argument& argument, const ArgumentType& type, const Operand& item) const {
    if (item.list()) refuse(argument, type, "a list of lists");
    const c10::IValue* constant = item.constant();
    if (!constant) {
      if (!item.value()) fail(fmt::format("argument `{}` holds null", argument.name()));
      if (!type.takes_value()) refuse(argument, type, "a list with the tensor " + describe(*item.value()));
    } else if (constant->isNone()) {
      if (!type.optional_items) refuse(argument, type, "a list with None");
    } else if (!fits(type.kind, *constant)) {
      refuse(argument, type, fmt::format("a list with the {} {}", constant->tagKind(), literal(*constant, type)));
    }
  }

  void check_constant(const c10::Argument& argument, const ArgumentType& type, const c10::IValue& value) const {
    if (value.isNone()) {
      // An undefined tensor is how LibTorch says None for a plain Tensor argument, too.
      bool undefined = type.kind == Kind::tensor && !type.list;
      if (!type.optional && !undefined && type.kind != Kind::other) refuse(argument, type, "None");
    } else if (value.isTensor()) {
      refuse(argument, type, "a tensor outside of the graph (it must be a constant of the graph)");
    } else if (value.isList()) {
      if (!type.list) refuse(argument, type, "a list");
      for (const c10::IValue& item : value.toListRef()) check_item(argument, type, Operand(item));
    } else if (type.list || !fits(type.kind, value)) {
      refuse(argument, type, fmt::format("the {} {}", value.tagKind(), literal(value, type)));
    }
  }

  const Node& node_;
};

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph) {}

  void run() {
    for (const auto& input : graph_.inputs()) define_named(input.value, "input");
    for (const auto& constant : graph_.constants()) {
      define_named(constant.value, "constant");
      if (!constant.tensor.defined()) fail(fmt::format("constant {} holds no tensor", describe(*constant.value)));
    }
    for (const auto& node : graph_.nodes()) check(*node);
    check_outputs();
  }

 private:
  [[noreturn]] void fail(const std::string& what, const Source& source = {}) const {
    throw GraphError(fmt::format("graph `{}` is not valid: {}", graph_.name(), what), source);
  }
  [[noreturn]] void fail(const Node& node, const std::string& what) const {
    fail(fmt::format("{}: {}", describe(node), what), node.source);
  }

  void define(const Value* value, const std::string& what) {
    if (!value) fail(what + " is null");
    if (!defined_.insert(value).second) fail(fmt::format("{} {} is defined twice", what, describe(*value)));
    if (value->name.empty() && !ids_.insert(value->id).second)
      fail(fmt::format("two values are numbered %{}", value->id));
  }

  void define_named(const Value* value, const std::string& what) {
    define(value, what);
    if (value->producer) fail(fmt::format("{} {} is the result of a node", what, describe(*value)));
    if (value->name.empty()) fail(fmt::format("an {} has no name", what));
    if (!names_.insert(value->name).second) fail(fmt::format("two inputs or constants are named {}", describe(*value)));
  }

  void check(const Node& node) {
    try {
      verify_call(node);
    } catch (const GraphError& error) {
      fail(error.what(), node.source);
    }
    for (size_t i = 0; i < node.operands.size(); ++i)
      check_uses(node, node.op.schema().arguments()[i], node.operands[i]);
    for (const Value* result : node.results) {
      define(result, "result");
      if (result->producer != &node) fail(node, fmt::format("its result {} names another producer", describe(*result)));
    }
  }

  void check_uses(const Node& node, const c10::Argument& argument, const Operand& operand) const {
    if (const auto* items = operand.list()) {
      for (const auto& item : *items) check_uses(node, argument, item);
    } else if (const Value* value = operand.value(); value && !defined_.count(value)) {
      fail(node, fmt::format("argument `{}` uses {}, which is not defined before this node", argument.name(),
                             describe(*value)));
    }
  }

  void check_outputs() const {
    for (const Value* output : graph_.outputs()) {
      if (!output) fail("an output is null");
      if (!defined_.count(output)) fail(fmt::format("output {} is defined nowhere", describe(*output)));
    }
    const auto& names = graph_.output_names();
    if (!names.empty() && names.size() != graph_.outputs().size())
      fail(fmt::format("{} output names for {} outputs", names.size(), graph_.outputs().size()));
    std::unordered_set<std::string> seen;
    for (const auto& name : names)
      if (!seen.insert(name).second) fail(fmt::format("two outputs are named `{}`", name));
  }

  const Graph& graph_;
  std::unordered_set<const Value*> defined_;
  std::unordered_set<std::string> names_;
  std::unordered_set<uint32_t> ids_;
};

}  // namespace

void verify_call(const Node& node) { CallVerifier(node).run(); }

void verify(const Graph& graph) { Verifier(graph).run(); }

std::string StaysValid::fault_of(const Graph& graph) {
  try {
    verify(graph);
    return {};
  } catch (const GraphError& error) {
    return error.what();
  }
}

namespace {

void check(const Graph& graph, const Node& node) {
  const auto& name = node.op.operator_name();
  const operators::Contract* contract = operators::find_contract(name.name, name.overload_name);
  if (!contract)
    throw GraphError(
        fmt::format("{}: `{}{}{}` is not among the operators that a graph from text or from a file may use; "
                    "load the graph as trusted only if its author may run any code",
                    describe(node), name.name, name.overload_name.empty() ? "" : ".", name.overload_name),
        node.source);
  std::vector<c10::IValue> arguments;
  std::vector<bool> known;
  const auto& schema = node.op.schema();
  for (size_t i = 0; i < node.operands.size(); ++i) {
    const Operand& operand = node.operands[i];
    const at::Tensor* tensor = operand.value() ? graph.constant_of(operand.value()) : nullptr;
    const ArgumentType type = type_of(schema.arguments()[i]);
    known.push_back(tensor || operand.constant());
    arguments.push_back(tensor               ? c10::IValue(*tensor)
                        : operand.constant() ? boxed_constant(*operand.constant(), type)
                                             : c10::IValue());
  }
  if (const auto wrong = operators::violation_of_constants(*contract, schema, arguments, known))
    throw GraphError(fmt::format("{}: {}", describe(node), *wrong), node.source);
}

}  // namespace

void check_contracts(const Graph& graph) {
  for (const auto& node : graph.nodes()) check(graph, *node);
}

}  // namespace triage::graph
