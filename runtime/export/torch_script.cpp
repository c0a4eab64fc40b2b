// A graph as a TorchScript module. Nodes become nodes of TorchScript's own IR; numbers, which are tensors in a graph,
// become numbers there. TorchScript keeps no overload names and chooses overloads again by the types of arguments: what
// it chooses is compared with what was captured, here and again in the archive as it will be loaded.
#include <ATen/ATen.h>
#include <ATen/native/TypeProperties.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <sstream>
#include <unordered_map>

#include "runtime/export/state.h"
#include "runtime/graph/argument_type.h"
#include "runtime/graph/evaluation/number_math.h"
#include "runtime/graph/evaluation/number_ops.h"
#include "runtime/graph/passes/aliases.h"
#include "runtime/graph/text/describe.h"

namespace triage::exporting {
namespace {

namespace jit = torch::jit;
using graph::ArgumentType;
using graph::Kind;
using graph::Node;
using graph::Operand;
using graph::Value;

class Emitter {
 public:
  Emitter(const graph::Graph& graph, const ExportOptions& options, const std::vector<c10::IValue>& params)
      : graph_(graph), options_(options), params_(params), names_(names_of(graph)), module_(class_name(graph)) {}

  jit::Module run() {
    self_ = out_->addInput("self");
    self_->setType(module_._ivalue()->type());
    add_inputs();
    for (size_t i = 0; i < graph_.inputs().size(); ++i)
      if (graph_.inputs()[i].kind == graph::InputKind::tensor) check_input(i);
    check_sameness();
    add_constants();
    for (const auto& node : graph_.nodes()) add(*node);
    add_outputs();
    out_->lint();
    auto* forward = module_._ivalue()->compilation_unit()->create_function(
        c10::QualifiedName(*module_.type()->name(), "forward"), out_);
    module_.type()->addMethod(forward);
    forward->setSchema(schema());
    return module_;
  }

 private:
  static c10::QualifiedName class_name(const graph::Graph& graph) {
    std::string name = graph::is_identifier(graph.name()) ? graph.name() : "Program";
    return c10::QualifiedName("__torch__.triage." + name);
  }

  [[noreturn]] static void fail(const Node& node, const std::string& why) {
    throw GraphError(fmt::format("cannot convert {} to TorchScript: {}", graph::describe(node), why), node.source);
  }

  // --- inputs, constants, outputs

  void add_inputs() {
    size_t param = 0;
    for (const auto& input : graph_.inputs()) {
      jit::Value* value = out_->addInput(names_.at(input.value));
      const bool is_param = input.kind == graph::InputKind::param;
      value->setType(is_param ? params_.at(param++).type() : c10::TypePtr(c10::TensorType::get()));
      map_[input.value] = value;
    }
  }

  /// A module is held to the types and sizes of its program too: what was computed of them at capture stands in it as
  /// numbers.
  void check_input(size_t i) {
    const Value& input = *graph_.inputs()[i].value;
    jit::Value* tensor = map_.at(&input);
    const auto rank = static_cast<int64_t>(input.meta->sizes.size());
    std::vector<std::string> dims;
    for (int64_t dim = 0; dim < rank; ++dim) {
      const std::string symbol = symbol_of(options_, i, dim);
      dims.push_back(symbol.empty() ? std::to_string(input.meta->sizes[static_cast<size_t>(dim)]) : symbol);
    }
    const std::string message = fmt::format("exported program '{}', input '{}': expected {}[{}]", graph_.name(),
                                            input.name, graph::short_dtype(input.meta->dtype), fmt::join(dims, ", "));
    const auto dtype = static_cast<int64_t>(input.meta->dtype);
    require(equal(out_->insert(jit::prim::dtype, {tensor}), dtype), message);
    require(equal(out_->insert(c10::aten::dim, {tensor}), rank), message);
    for (int64_t dim = 0; dim < rank; ++dim) check_size(i, dim, message);
  }

  void check_size(size_t i, int64_t dim, const std::string& message) {
    const Value& input = *graph_.inputs()[i].value;
    const std::string symbol = symbol_of(options_, i, dim);
    const auto bounds = options_.bounds.find(symbol);
    const bool bounded = bounds != options_.bounds.end();
    const auto uses = std::count_if(options_.dynamic_dims.begin(), options_.dynamic_dims.end(),
                                    [&](const DynamicDim& dynamic) { return dynamic.symbol == symbol; });
    if (uses == 1 && !bounded) return;  // any size will do
    jit::Value* size = out_->insert(c10::aten::size, {map_.at(&input), dim});
    if (symbol.empty()) return require(equal(size, input.meta->sizes[static_cast<size_t>(dim)]), message);
    const auto [known, fresh] = sizes_.emplace(symbol, size);
    if (!fresh)
      return require(equal(size, known->second), message + fmt::format(", with {} as in an earlier input", symbol));
    if (!bounded) return;
    const auto [min, max] = bounds->second;
    const std::string words = message + fmt::format(", {} in [{}, {}]", symbol, min, max);
    require(out_->insert(c10::aten::ge, {size, min}), words);
    require(out_->insert(c10::aten::le, {size, max}), words);
  }

  jit::Value* equal(jit::Value* a, const jit::NamedValue& b) { return out_->insert(c10::aten::eq, {a, b}); }

  void check_sameness() {
    const std::vector<size_t>& same = options_.same_inputs;
    const auto& inputs = graph_.inputs();
    for (size_t i = 0; i < same.size(); ++i)
      for (size_t j = 0; j < i; ++j) {
        jit::Value* one = out_->insert(c10::aten::__is__, {map_.at(inputs[j].value), map_.at(inputs[i].value)});
        const bool wanted = same[i] == same[j];
        require(wanted ? one : out_->insert(c10::aten::__not__, {one}),
                fmt::format("exported program '{}': inputs '{}' and '{}' must be {}", graph_.name(),
                            inputs[j].value->name, inputs[i].value->name, wanted ? "one tensor" : "two tensors"));
      }
  }

  c10::FunctionSchema schema() const {
    std::vector<c10::Argument> arguments = {c10::Argument("self", self_->type())}, returns;
    size_t param = 0;
    for (const auto& input : graph_.inputs()) {
      const bool is_param = input.kind == graph::InputKind::param;
      auto standard = is_param ? c10::optional<c10::IValue>(params_.at(param++)) : c10::optional<c10::IValue>();
      arguments.emplace_back(names_.at(input.value), map_.at(input.value)->type(), c10::nullopt, std::move(standard));
    }
    returns.emplace_back("", out_->outputs().at(0)->type());
    return c10::FunctionSchema("forward", "", std::move(arguments), std::move(returns));
  }

  /// What callers see of a constant is a copy: they may write to it.
  void add_constants() {
    const auto seen = graph::seen_through_outputs(graph_);
    for (const auto& constant : graph_.constants()) {
      const std::string& name = names_.at(constant.value);
      if (constant.tensor.requires_grad())
        module_.register_parameter(name, constant.tensor.detach().clone().set_requires_grad(true), false);
      else
        module_.register_buffer(name, constant.tensor.detach().clone());
      jit::Value* held = out_->insertGetAttr(self_, name)->setType(c10::TensorType::get());
      map_[constant.value] = seen.count(constant.value) ? out_->insert(c10::aten::clone, {held}) : held;
    }
  }

  void add_outputs() {
    std::vector<jit::Value*> outputs;
    for (const Value* output : graph_.outputs()) outputs.push_back(as_tensor(map_.at(output), dtype_of(output)));
    out_->registerOutput(outputs.size() == 1 ? outputs[0] : out_->insertNode(out_->createTuple(outputs))->output());
  }

  // --- nodes

  void add(const Node& node) {
    if (const Value* tensor = graph::item_of(node)) return add_item(node, *tensor);
    if (const auto size = graph::size_read(node)) return add_size(node, *size);
    if (graph::is_assertion(node)) return add_assertion(node);
    if (graph::is_choice(node)) return add_choice(node);
    if (const graph::MathFunction* function = graph::math_of(node)) return add_math(node, *function);
    const std::string& name = node.op.operator_name().name;
    std::vector<jit::Value*> arguments;
    const auto& schema = node.op.schema().arguments();
    for (size_t i = 0; i < schema.size(); ++i)
      arguments.push_back(argument(node, node.operands[i], graph::type_of(schema[i])));
    const auto& returns = node.op.schema().returns();
    jit::Node* call = out_->insertNode(out_->create(c10::Symbol::fromQualString(name), arguments, returns.size()));
    for (size_t i = 0; i < returns.size(); ++i) call->output(i)->setType(returns[i].type());
    check_overload(node, *call);
    take_results(node, *call);
  }

  void take_results(const Node& node, jit::Node& call) {
    size_t next = 0;
    const auto& returns = node.op.schema().returns();
    for (size_t i = 0; i < returns.size(); ++i) {
      if (!graph::type_of(returns[i]).list) {
        map_[node.results.at(next++)] = call.output(i);
        continue;
      }
      const size_t count = node.results.size() - (returns.size() - 1);  // captured graphs have one list at most
      jit::Node* unpacked = out_->insertNode(out_->createListUnpack(call.output(i), count));
      for (size_t k = 0; k < count; ++k) map_[node.results.at(next++)] = unpacked->output(k);
    }
  }

  static void check_overload(const Node& node, const jit::Node& call) {
    const c10::FunctionSchema* chosen = call.maybeSchema();
    if (!chosen) fail(node, "TorchScript has no overload for these arguments");
    if (chosen->operator_name() != node.op.operator_name())
      fail(node, fmt::format("TorchScript resolves it to {}.{}", chosen->name(), chosen->overload_name()));
  }

  void add_item(const Node& node, const Value& of) {
    const bool whole = dtype_of(node.results.front()) == at::kLong;
    map_[node.results.front()] = out_->insert(whole ? c10::aten::Int : c10::aten::Float, {map_.at(&of)});
  }

  void add_size(const Node& node, const graph::SizeRead& size) {
    map_[node.results.front()] = out_->insert(c10::aten::size, {map_.at(size.of), size.dim});
  }

  /// TorchScript's functions of floats are those of <cmath>; it has no logarithm to the base 2.
  void add_math(const Node& node, const graph::MathFunction& function) {
    const auto number = [&](const Operand& operand) {
      const Value* value = operand.value();
      return value ? as_number(map_.at(value), Kind::real) : constant(operand.constant()->toScalar().toDouble());
    };
    std::vector<jit::NamedValue> numbers{number(node.operands[0])};
    if (function.binary) numbers.emplace_back(number(node.operands[2]));
    const bool missing = function.name == "log2";
    if (missing) numbers[0] = as_tensor(numbers[0].value(*out_), at::kDouble);
    jit::Value* result = out_->insert(c10::Symbol::fromQualString(function.operation), numbers);
    map_[node.results.front()] = missing ? out_->insert(c10::aten::Float, {result}) : result;
  }

  /// An `if` that raises: hosts without triage know no assertion that says something, and that all versions have.
  void add_assertion(const Node& node) {
    const c10::IValue* words = node.operands.size() > 1 ? node.operands[1].constant() : nullptr;
    const bool worded = words && words->isString() && !words->toStringRef().empty();
    require(as_number(map_.at(node.operands[0].value()), Kind::boolean),
            worded ? words->toStringRef() : "Runtime assertion failed");
  }

  /// An `if`: the result has the order of dims of what it chooses, as that of a script's IF.
  void add_choice(const Node& node) {
    const auto& schema = node.op.schema().arguments();
    jit::Value* const condition = as_number(map_.at(node.operands[0].value()), Kind::boolean);
    jit::Node* choice = out_->insertNode(out_->create(jit::prim::If, {condition}, 1));
    for (const size_t i : {1, 2}) {
      jit::Block* const block = choice->addBlock();
      const jit::WithInsertPoint inside(block);
      block->registerOutput(
          out_->insert(c10::aten::clone, {argument(node, node.operands[i], graph::type_of(schema[i]))}));
    }
    choice->output()->setType(c10::TensorType::get());
    map_[node.results.front()] = choice->output();
  }

  void require(jit::Value* condition, const std::string& message) {
    jit::Node* check = out_->insertNode(out_->create(jit::prim::If, {condition}, 0));
    check->addBlock();
    const jit::WithInsertPoint otherwise(check->addBlock());
    out_->insert(jit::prim::RaiseException, {message});
  }

  // --- arguments

  static at::ScalarType dtype_of(const Value* value) { return value->meta ? value->meta->dtype : at::kLong; }

  static bool is_tensor(const jit::Value* value) { return value->type()->isSubtypeOf(*c10::TensorType::get()); }

  jit::Value* as_tensor(jit::Value* value, at::ScalarType dtype) {
    if (is_tensor(value)) return value;
    return out_->insert(c10::aten::scalar_tensor, {value}, {{"dtype", static_cast<int64_t>(dtype)}});
  }

  jit::Value* as_number(jit::Value* value, Kind kind) {
    const bool tensor = is_tensor(value);
    const auto type = value->type()->kind();
    switch (kind) {
      case Kind::integer:
        return type == c10::TypeKind::IntType ? value : out_->insert(c10::aten::Int, {value});
      case Kind::real:
        return type == c10::TypeKind::FloatType ? value : out_->insert(c10::aten::Float, {value});
      case Kind::boolean:
        return type == c10::TypeKind::BoolType ? value : out_->insert(c10::aten::Bool, {value});
      default:
        return tensor ? out_->insert(c10::aten::item, {value}) : value;
    }
  }

  jit::Value* argument(const Node& node, const Operand& operand, const ArgumentType& type) {
    if (type.list) return list(node, operand, type);
    return item(node, operand, type);
  }

  jit::Value* list(const Node& node, const Operand& operand, const ArgumentType& type) {
    if (operand.constant() && operand.constant()->isNone()) return out_->insertConstant(c10::IValue());
    std::vector<Operand> items;
    if (operand.list()) items = *operand.list();
    if (operand.constant())
      for (const c10::IValue& value : operand.constant()->toListRef()) items.emplace_back(value);
    std::vector<jit::Value*> values;
    for (const Operand& each : items) values.push_back(item(node, each, type));
    return out_->insertNode(out_->createList(type.element, values))->output();
  }

  jit::Value* item(const Node& node, const Operand& operand, const ArgumentType& type) {
    if (const Value* value = operand.value()) {
      jit::Value* known = map_.at(value);
      if (type.kind != Kind::tensor) return as_number(known, type.kind);
      return is_tensor(known) ? known : as_tensor(known, number_dtype(node, value));
    }
    const c10::IValue& constant = *operand.constant();
    const bool number = constant.isInt() || constant.isDouble() || constant.isBool();
    if (type.kind == Kind::tensor && number)
      return out_->insertConstant(at::scalar_tensor(constant.toScalar(), promoted(node)));
    if (constant.isNone() && type.kind == Kind::tensor && !type.optional && !type.optional_items)
      fail(node, "TorchScript has no undefined tensors");
    return this->constant(constant);
  }

  /// The text of an archive writes whole reals of many digits as integers (1e10 as 10000000000), and has no -0: those
  /// are computed there.
  jit::Value* constant(const c10::IValue& value) {
    constexpr double many = 1e10, most = 0x1p63;
    const double real = value.isDouble() ? value.toDouble() : 1.0;
    if (real == 0.0 && std::signbit(real)) return out_->insert(c10::aten::neg, {out_->insertConstant(0.0)});
    if (std::abs(real) < many || std::abs(real) >= most || std::trunc(real) != real) return out_->insertConstant(value);
    return out_->insert(c10::aten::Float, {out_->insertConstant(static_cast<int64_t>(real))});
  }

  /// A size or an item is a tensor of its own dtype, a param a wrapped number.
  at::ScalarType number_dtype(const Node& node, const Value* value) {
    return value->producer ? dtype_of(value) : promoted(node).dtype().toScalarType();
  }

  /// What the tensors and numbers of a call are computed in. TorchScript has no wrapped numbers: a 0-dim tensor of this
  /// dtype promotes nothing.
  at::TensorOptions promoted(const Node& node) const {
    at::native::ResultTypeState state{};
    const auto note = [&](const Operand& operand) {
      if (const Value* value = operand.value()) {
        const auto found = map_.find(value);
        const bool is_number = found != map_.end() && !is_tensor(found->second) && !value->producer;
        if (value->meta) {
          at::Tensor like = at::empty(std::vector<int64_t>(value->meta->sizes.size(), 1), value->meta->dtype);
          if (is_number) like.unsafeGetTensorImpl()->set_wrapped_number(true);
          state = at::native::update_result_type_state(like, state);
        }
      } else if (const c10::IValue* constant = operand.constant(); constant && constant->isScalar()) {
        at::Tensor like = c10::scalar_to_tensor(constant->toScalar());
        like.unsafeGetTensorImpl()->set_wrapped_number(true);
        state = at::native::update_result_type_state(like, state);
      }
    };
    const auto& schema = node.op.schema().arguments();
    for (size_t i = 0; i < schema.size(); ++i)
      if (graph::type_of(schema[i]).kind == Kind::tensor && !graph::type_of(schema[i]).list) note(node.operands[i]);
    return at::TensorOptions(at::native::result_type(state));
  }

  const graph::Graph& graph_;
  const ExportOptions& options_;
  const std::vector<c10::IValue>& params_;
  Names names_;
  jit::Module module_;
  std::shared_ptr<jit::Graph> out_ = std::make_shared<jit::Graph>();
  jit::Value* self_ = nullptr;
  std::unordered_map<const Value*, jit::Value*> map_;
  std::map<std::string, jit::Value*> sizes_;  // by symbol
};

/// The ATen operators of a module's forward, sorted: a text may have them in another order than the graph it was made
/// of.
std::vector<std::string> operators_of(const jit::Module& module) {
  std::vector<std::string> names;
  const auto is_constant = [](const jit::Node* node) {  // what `constant` computes is one once it is loaded
    const bool computes = node->kind() == c10::aten::Float || node->kind() == c10::aten::neg;
    return computes && node->input(0)->node()->kind() == jit::prim::Constant;
  };
  for (const jit::Node* node : module.get_method("forward").graph()->nodes())
    if (node->kind().is_aten() && !is_constant(node))
      if (const c10::FunctionSchema* schema = node->maybeSchema())
        names.push_back(c10::toString(schema->operator_name()));
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::string to_torchscript(const graph::Graph& graph, const ExportOptions& options,
                           const std::vector<c10::IValue>& params) {
  const jit::Module module = Emitter(graph, options, params).run();
  std::stringstream archive;
  module.save(archive);
  std::istringstream in(archive.str());
  const std::vector<std::string> wanted = operators_of(module), loaded = operators_of(jit::load(in));
  if (wanted != loaded) {
    const auto only_in = [](const std::vector<std::string>& a, const std::vector<std::string>& b) {
      std::vector<std::string> rest;
      std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(rest));
      return fmt::format("{}", fmt::join(rest, ", "));
    };
    const std::string meant = only_in(loaded, wanted), lost = only_in(wanted, loaded);
    throw GraphError(fmt::format(
        "cannot convert graph `{}` to TorchScript: its text {}. Save it as a program (program:save), which triage "
        "runs, or use other operations",
        graph.name(),
        meant.empty()
            ? fmt::format("leaves out {}, whose results are unused", lost)
            : fmt::format("names no overloads, and TorchScript resolves it to {}, but the graph has {}", meant, lost)));
  }
  return archive.str();
}

}  // namespace triage::exporting
