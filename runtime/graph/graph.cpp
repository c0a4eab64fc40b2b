#include <triage/graph.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "runtime/graph/copy.h"
#include "runtime/graph/memory.h"
#include "runtime/graph/passes/uses.h"
#include "runtime/graph/visits.h"
#include "runtime/messages/assert.h"

namespace triage::graph {

Value* Operand::value() const {
  count_visits();
  auto* const value = std::get_if<Value*>(&data);
  return value ? *value : nullptr;
}

const std::vector<Operand>* Operand::list() const {
  const auto* const items = std::get_if<std::vector<Operand>>(&data);
  if (items) count_visits();
  return items;
}

namespace {

using ValueMap = std::unordered_map<const Value*, Value*>;

Operand mapped(const Operand& operand, const ValueMap& map) {
  if (Value* value = operand.value()) return map.at(value);
  if (const auto* list = operand.list()) {
    std::vector<Operand> items;
    items.reserve(list->size());
    for (const auto& item : *list) items.push_back(mapped(item, map));
    return items;
  }
  return operand;
}

void collect(const Operand& operand, std::unordered_set<const Value*>& used) {
  if (const Value* value = operand.value()) used.insert(value);
  if (const auto* list = operand.list())
    for (const auto& item : *list) collect(item, used);
}

/// Larger than every number behind `stem` among the names.
size_t next_number(const std::string& stem, const Graph& graph) {
  size_t next = 0;
  const auto look_at = [&](const std::string& name) {
    constexpr size_t most_digits = 9;
    if (name.size() > stem.size() + most_digits || name.compare(0, stem.size(), stem) != 0) return;
    const std::string digits = name.substr(stem.size());
    if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos) return;
    next = std::max<size_t>(next, std::stoul(digits) + 1);
  };
  for (const auto& input : graph.inputs()) look_at(input.value->name);
  for (const auto& constant : graph.constants()) look_at(constant.value->name);
  return next;
}

}  // namespace

Graph::Graph(std::string name) : name_(std::move(name)), values_(std::make_unique<std::deque<MutableValue>>()) {}
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;
Graph::~Graph() = default;

Value* Graph::new_value() {
  MutableValue& value = values_->emplace_back();
  value.id = next_id_++;
  return &value;
}

MutableValue& Graph::edit(Value* value) {
  return const_cast<MutableValue&>(*value);  // an element of *values_, which is not const
}

void Graph::set_id(Value* value, uint32_t id) {
  edit(value).id = id;
  next_id_ = std::max(next_id_, id + 1);
}

Value* Graph::add_input(std::string name, InputKind kind, std::optional<TensorMeta> meta) {
  MutableValue& value = edit(new_value());
  value.name = name.empty() ? "in" + std::to_string(inputs_.size()) : std::move(name);
  value.meta = std::move(meta);
  names_.insert(value.name);
  inputs_.push_back({&value, kind});
  return &value;
}

bool Graph::has_name(const std::string& name) const { return names_.count(name) != 0; }

std::string Graph::unique_name(const std::string& stem) {
  const auto [place, fresh] = next_numbers_.try_emplace(stem);
  size_t& number = place->second;
  if (fresh) number = std::max(constants_.size() + 1, next_number(stem, *this));
  while (has_name(stem + std::to_string(number))) ++number;
  return stem + std::to_string(number++);
}

void Graph::push_constant(Constant constant) {
  names_.insert(constant.value->name);
  constant_places_[constant.value] = constants_.size();
  constants_.push_back(std::move(constant));
}

Value* Graph::add_constant(at::Tensor tensor, std::string name) {
  const std::string stem = name.empty() ? "c" : name + "_";
  std::string unique = name.empty() ? stem + std::to_string(constants_.size()) : name;
  MutableValue& value = edit(new_value());
  value.name = has_name(unique) ? unique_name(stem) : std::move(unique);
  if (tensor.defined()) value.meta = TensorMeta{tensor.scalar_type(), tensor.sizes().vec(), tensor.device()};
  push_constant({&value, std::move(tensor)});
  return &value;
}

Value* Graph::add_variable(at::Tensor tensor, std::string name) {
  Value* value = add_constant(std::move(tensor), std::move(name));
  constants_.back().variable = true;
  return value;
}

Node* Graph::append(c10::OperatorHandle op, std::vector<Operand> operands, size_t num_results, Source source) {
  auto node = std::make_unique<Node>(Node{std::move(op), std::move(operands), {}, std::move(source)});
  node->results.reserve(num_results);
  for (size_t i = 0; i < num_results; ++i) {
    MutableValue& value = edit(new_value());
    value.producer = node.get();
    value.is_flags = returns_flags(node->op, i);
    node->results.push_back(&value);
  }
  return nodes_.emplace_back(std::move(node)).get();
}

void Graph::set_outputs(std::vector<Value*> outputs, std::vector<std::string> names) {
  outputs_ = std::move(outputs);
  output_names_ = std::move(names);
}

const at::Tensor* Graph::constant_of(Value* value) const {
  const auto found = constant_places_.find(value);
  return found == constant_places_.end() ? nullptr : &constants_[found->second].tensor;
}

bool Graph::is_variable(Value* value) const {
  const auto found = constant_places_.find(value);
  return found != constant_places_.end() && constants_[found->second].variable;
}

void Graph::drop_unused_constants() {
  std::unordered_set<const Value*> used(outputs_.begin(), outputs_.end());
  for (const auto& node : nodes_)
    for (const auto& operand : node->operands) collect(operand, used);
  std::vector<Constant> all;
  all.swap(constants_);
  constant_places_.clear();
  for (Constant& constant : all) {
    if (used.count(constant.value))
      push_constant(std::move(constant));
    else
      names_.erase(constant.value->name);
  }
}

Graph Graph::clone() const {
  Graph copy(name_);
  ValueMap map;
  auto copied = [&](const Value* value) {
    MutableValue* fresh = &copy.values_->emplace_back(*value);
    fresh->producer = nullptr;
    map[value] = fresh;
    return fresh;
  };
  for (const auto& input : inputs_) copy.inputs_.push_back({copied(input.value), input.kind});
  for (const auto& constant : constants_)
    copy.push_constant({copied(constant.value), constant.tensor, constant.variable});
  copy.names_ = names_;
  copy.next_numbers_ = next_numbers_;
  for (const auto& node : nodes_) {
    auto twin = std::make_unique<Node>(Node{node->op, {}, {}, node->source});
    for (const auto& operand : node->operands) twin->operands.push_back(mapped(operand, map));
    for (const Value* result : node->results) {
      MutableValue* fresh = copied(result);
      fresh->producer = twin.get();
      twin->results.push_back(fresh);
    }
    copy.nodes_.push_back(std::move(twin));
  }
  for (const Value* output : outputs_) copy.outputs_.push_back(map.at(output));
  copy.output_names_ = output_names_;
  copy.next_id_ = next_id_;
  copy.recorded_types_ = recorded_types_;
  return copy;
}

void replace_uses(Graph& graph, const Replacements& replacements) {
  if (replacements.empty()) return;
  for ([[maybe_unused]] const auto& [from, to] : replacements) TRIAGE_ASSERT(to && !replacements.count(to));
  auto replace = [&](Value*& value) {
    if (auto found = replacements.find(value); found != replacements.end()) value = found->second;
  };
  for (auto& node : graph.nodes()) for_each_use(*node, replace);
  for (auto& output : graph.outputs()) replace(output);
}

bool is_view(const c10::OperatorHandle& op) {
  const auto& results = op.schema().returns();
  return results.size() == 1 && results[0].alias_info() && !results[0].alias_info()->isWrite();
}

void copy_facts(const Value& from, MutableValue& to) {
  to.meta = from.meta;
  to.is_flags = from.is_flags;
}

Value* copy_input(Graph& into, const Input& input, Copies& copies) {
  Value* copy = into.add_input(input.value->name, input.kind, input.value->meta);
  into.edit(copy).is_flags = input.value->is_flags;
  return copies[input.value] = copy;
}

Value* copy_constant(Graph& into, const Constant& constant, Copies& copies) {
  Value* copy = constant.variable ? into.add_variable(constant.tensor, constant.value->name)
                                  : into.add_constant(constant.tensor, constant.value->name);
  into.edit(copy).is_flags = constant.value->is_flags;
  return copies[constant.value] = copy;
}

Node* copy_node(Graph& into, const Node& node, Copies& copies) {
  std::vector<Operand> operands = node.operands;
  for (Operand& operand : operands)
    for_each_use(operand, [&](Value*& value) {
      TRIAGE_ASSERT(copies.count(value) != 0);
      value = copies.at(value);
    });
  Node* twin = into.append(node.op, std::move(operands), node.results.size(), node.source);
  twin->checks = node.checks;
  for (size_t i = 0; i < node.results.size(); ++i) {
    copy_facts(*node.results[i], into.edit(twin->results[i]));
    copies[node.results[i]] = twin->results[i];
  }
  return twin;
}

namespace {

size_t heap_bytes(const Operand& operand) {
  if (const c10::IValue* constant = operand.constant()) return graph::heap_bytes(*constant);
  const std::vector<Operand>* list = operand.list();
  if (!list) return 0;
  size_t bytes = graph::heap_bytes(*list);
  for (const Operand& item : *list) bytes += heap_bytes(item);
  return bytes;
}

size_t bytes_of(const Value& value) {
  return sizeof(Value) + graph::heap_bytes(value.name) + (value.meta ? graph::heap_bytes(value.meta->sizes) : 0);
}

size_t bytes_of(const Node& node) {
  size_t bytes = sizeof(Node) + graph::heap_bytes(node.operands) + graph::heap_bytes(node.results) +
                 graph::heap_bytes(node.source.file);
  for (const Operand& operand : node.operands) bytes += heap_bytes(operand);
  for (const Value* result : node.results) bytes += bytes_of(*result);
  return bytes;
}

}  // namespace

size_t heap_bytes(const c10::IValue& value) {
  if (value.isString()) return sizeof(c10::ivalue::ConstantString) + heap_bytes(value.toStringRef());
  if (!value.isList()) return 0;
  return value.toListRef().size() * sizeof(c10::IValue);
}

size_t bytes(const Graph& graph) {
  size_t bytes = sizeof(Graph) + heap_bytes(graph.name()) + heap_bytes(graph.inputs()) + heap_bytes(graph.constants()) +
                 heap_bytes(graph.nodes()) + heap_bytes(graph.outputs()) + heap_bytes(graph.output_names());
  for (const Input& input : graph.inputs()) bytes += bytes_of(*input.value);
  for (const std::string& name : graph.output_names()) bytes += heap_bytes(name);
  for (const auto& node : graph.nodes()) bytes += bytes_of(*node);
  for (const Constant& constant : graph.constants()) {
    bytes += bytes_of(*constant.value);
    if (!constant.variable && constant.tensor.defined() && constant.tensor.has_storage())
      bytes += constant.tensor.storage().nbytes();
  }
  return bytes;
}

}  // namespace triage::graph
