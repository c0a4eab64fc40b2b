#include "runtime/backends/plan.h"

#include <unordered_map>

#include "runtime/graph/evaluation/evaluate.h"
#include "runtime/graph/memory.h"
#include "runtime/graph/text/describe.h"

namespace triage::eager {
namespace {

using graph::Graph;
using graph::Node;
using graph::Operand;
using graph::Value;

class Planner {
 public:
  explicit Planner(const Graph& graph) : graph_(graph) {}

  EagerPlan run() {
    plan_.name = graph_.name();
    plan_.num_inputs = graph_.inputs().size();
    for (const auto& input : graph_.inputs()) assign(input.value);
    for (const auto& constant : graph_.constants()) {
      constants_[constant.value] = add_constant(constant.tensor);
      plan_.tensors.push_back(constant.tensor);
    }
    find_last_uses();
    for (const auto& node : graph_.nodes()) add_step(*node);
    add_outputs();
    plan_.num_registers = registers_.size();
    return std::move(plan_);
  }

 private:
  void assign(const Value* value) {
    Register next = static_cast<Register>(registers_.size());
    registers_[value] = next;
  }

  uint32_t add_constant(c10::IValue value) {
    plan_.constants.push_back(std::move(value));
    return static_cast<uint32_t>(plan_.constants.size() - 1);
  }

  void visit(const Operand& operand, const void* user) {
    if (const Value* value = operand.value()) {
      last_use_[value] = user;
      ++uses_[value];
    }
    if (const auto* items = operand.list())
      for (const auto& item : *items) visit(item, user);
  }

  void find_last_uses() {
    for (const auto& node : graph_.nodes())
      for (const auto& operand : node->operands) visit(operand, node.get());
    for (const Value* output : graph_.outputs()) {
      last_use_[output] = nullptr;  // outlives every node
      ++uses_[output];
    }
  }

  /// How an argument is filled from a value. Inputs belong to the caller and are never taken.
  ArgumentSlot slot_of(const Value* value, graph::Kind kind, const Node& user) {
    if (auto constant = constants_.find(value); constant != constants_.end()) {
      if (kind == graph::Kind::tensor) return {ArgumentSlot::From::constant, kind, constant->second};
      if (graph_.is_variable(value))
        throw GraphError("graph `" + graph_.name() + "`: variable `%" + value->name +
                         "` is used as a number, and its value may change; make it an input");
      return constant_slot(graph::read_number(plan_.constants[constant->second].toTensor(), kind));
    }
    Register at = registers_.at(value);
    if (kind != graph::Kind::tensor) return {ArgumentSlot::From::number, kind, at};
    bool take = value->producer && last_use_.at(value) == &user && --remaining(value, user) == 0;
    return {take ? ArgumentSlot::From::take : ArgumentSlot::From::read, kind, at};
  }

  /// How often `user` still has to read `value` (an operand may stand twice in one call).
  int& remaining(const Value* value, const Node& user) {
    if (remaining_.empty())
      for (const auto& operand : user.operands) count(operand);
    return remaining_.at(value);
  }

  void count(const Operand& operand) {
    if (const Value* value = operand.value()) ++remaining_[value];
    if (const auto* items = operand.list())
      for (const auto& item : *items) count(item);
  }

  ArgumentSlot constant_slot(c10::IValue value) {
    return {ArgumentSlot::From::constant, graph::Kind::tensor, add_constant(std::move(value))};
  }

  ArgumentSlot scalar_slot(const Operand& operand, const graph::ArgumentType& type, const Node& user) {
    if (const Value* value = operand.value()) return slot_of(value, type.kind, user);
    return constant_slot(graph::boxed_constant(*operand.constant(), type));
  }

  ArgumentSlot list_slot(const std::vector<Operand>& items, const graph::ArgumentType& type, const Node& user) {
    List list{{}, type.element};
    bool varies = false;
    for (const auto& item : items) {
      list.items.push_back(scalar_slot(item, type, user));
      varies |= list.items.back().from != ArgumentSlot::From::constant;
    }
    if (varies) {
      plan_.lists.push_back(std::move(list));
      return {ArgumentSlot::From::list, type.kind, static_cast<uint32_t>(plan_.lists.size() - 1)};
    }
    c10::impl::GenericList fixed(type.element);
    for (const ArgumentSlot& item : list.items) fixed.push_back(plan_.constants[item.index]);
    return constant_slot(c10::IValue(std::move(fixed)));
  }

  /// Some number among its arguments is found out again in every run.
  static bool takes_numbers(const Node& node, const std::vector<ArgumentSlot>& slots) {
    for (size_t i = 0; i < slots.size(); ++i)
      if (slots[i].from == ArgumentSlot::From::number ||
          (slots[i].from == ArgumentSlot::From::list &&
           graph::type_of(node.op.schema().arguments()[i]).kind != graph::Kind::tensor))
        return true;
    return false;
  }

  void add_step(const Node& node) {
    const auto& schema = node.op.schema();
    std::vector<ArgumentSlot> slots;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      graph::ArgumentType type = graph::type_of(schema.arguments()[i]);
      const auto* items = node.operands[i].list();
      slots.push_back(items ? list_slot(*items, type, node) : scalar_slot(node.operands[i], type, node));
    }
    const auto& name = node.op.operator_name();
    const operators::Contract* contract = operators::find_contract(name.name, name.overload_name);
    remaining_.clear();
    PlanStep step{node.op,
                  static_cast<uint32_t>(plan_.slots.size()),
                  static_cast<uint32_t>(slots.size()),
                  static_cast<Register>(registers_.size()),
                  static_cast<uint32_t>(node.results.size()),
                  false,
                  static_cast<uint32_t>(plan_.unused.size()),
                  0,
                  contract,
                  !contract                    ? operators::AskedAgain::never
                  : takes_numbers(node, slots) ? operators::AskedAgain::always
                                               : operators::asked_again(*contract, schema)};
    plan_.slots.insert(plan_.slots.end(), slots.begin(), slots.end());
    for (const auto& result : schema.returns()) step.returns_list |= graph::type_of(result).list;
    for (const Value* result : node.results) {
      assign(result);
      if (!uses_.count(result)) {
        plan_.unused.push_back(registers_.at(result));
        ++step.num_unused;
      }
    }
    plan_.steps.push_back(std::move(step));
    plan_.origins.push_back({graph::describe(node), node.source});
  }

  void add_outputs() {
    std::unordered_map<const Value*, size_t> last;
    for (size_t i = 0; i < graph_.outputs().size(); ++i) last[graph_.outputs()[i]] = i;
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      const Value* value = graph_.outputs()[i];
      if (auto constant = constants_.find(value); constant != constants_.end())
        plan_.outputs.push_back({PlanOutput::From::constant, constant->second});
      else if (value->producer)
        plan_.outputs.push_back({PlanOutput::From::result, registers_.at(value), last.at(value) == i});
      else
        plan_.outputs.push_back({PlanOutput::From::input, registers_.at(value)});
    }
  }

  const Graph& graph_;
  EagerPlan plan_;
  std::unordered_map<const Value*, Register> registers_;
  std::unordered_map<const Value*, uint32_t> constants_;
  std::unordered_map<const Value*, const void*> last_use_;
  std::unordered_map<const Value*, int> uses_;
  std::unordered_map<const Value*, int> remaining_;  // of the node that is added
};

}  // namespace

EagerPlan plan_of(const Graph& graph) { return Planner(graph).run(); }

size_t bytes(const EagerPlan& plan) {
  using graph::heap_bytes;
  size_t bytes = heap_bytes(plan.name) + heap_bytes(plan.steps) + heap_bytes(plan.slots) + heap_bytes(plan.constants) +
                 heap_bytes(plan.lists) + heap_bytes(plan.unused) + heap_bytes(plan.outputs) +
                 heap_bytes(plan.tensors) + heap_bytes(plan.origins);
  for (const List& list : plan.lists) bytes += heap_bytes(list.items);
  for (const StepOrigin& origin : plan.origins) bytes += heap_bytes(origin.text) + heap_bytes(origin.source.file);
  return bytes;  // what constants point to is shared with the graph
}

}  // namespace triage::eager
