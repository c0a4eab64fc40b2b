#include <triage/graph.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace triage::graph {
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

Graph::Graph(std::string name) : name_(std::move(name)) {}
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;
Graph::~Graph() = default;

Value* Graph::new_value() {
  Value& value = values_.emplace_back();
  value.id = next_id_++;
  return &value;
}

void Graph::set_id(Value* value, uint32_t id) {
  value->id = id;
  next_id_ = std::max(next_id_, id + 1);
}

Value* Graph::add_input(std::string name, InputKind kind, std::optional<TensorMeta> meta) {
  Value* value = new_value();
  value->name = name.empty() ? "in" + std::to_string(inputs_.size()) : std::move(name);
  value->meta = std::move(meta);
  inputs_.push_back({value, kind});
  return value;
}

bool Graph::has_name(const std::string& name) const {
  for (const auto& input : inputs_)
    if (input.value->name == name) return true;
  for (const auto& constant : constants_)
    if (constant.value->name == name) return true;
  return false;
}

Value* Graph::add_constant(at::Tensor tensor, std::string name) {
  const size_t number = constants_.size();
  const std::string stem = name.empty() ? "c" : name + "_";
  std::string unique = name.empty() ? stem + std::to_string(number) : name;
  if (has_name(unique)) unique = stem + std::to_string(std::max(number + 1, next_number(stem, *this)));
  Value* value = new_value();
  value->name = std::move(unique);
  if (tensor.defined()) value->meta = TensorMeta{tensor.scalar_type(), tensor.sizes().vec(), tensor.device()};
  constants_.push_back({value, std::move(tensor)});
  return value;
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
    Value* value = new_value();
    value->producer = node.get();
    value->is_flags = returns_flags(node->op, i);
    node->results.push_back(value);
  }
  return nodes_.emplace_back(std::move(node)).get();
}

void Graph::set_outputs(std::vector<Value*> outputs, std::vector<std::string> names) {
  outputs_ = std::move(outputs);
  output_names_ = std::move(names);
}

const at::Tensor* Graph::constant_of(const Value* value) const {
  if (!value || value->producer) return nullptr;
  for (const auto& constant : constants_)
    if (constant.value == value) return &constant.tensor;
  return nullptr;
}

bool Graph::is_variable(const Value* value) const {
  for (const auto& constant : constants_)
    if (constant.value == value) return constant.variable;
  return false;
}

void Graph::drop_unused_constants() {
  std::unordered_set<const Value*> used(outputs_.begin(), outputs_.end());
  for (const auto& node : nodes_)
    for (const auto& operand : node->operands) collect(operand, used);
  std::erase_if(constants_, [&](const Constant& constant) { return !used.count(constant.value); });
}

Graph Graph::clone() const {
  Graph copy(name_);
  ValueMap map;
  auto copied = [&](const Value* value) {
    Value* fresh = &copy.values_.emplace_back(*value);
    fresh->producer = nullptr;
    map[value] = fresh;
    return fresh;
  };
  for (const auto& input : inputs_) copy.inputs_.push_back({copied(input.value), input.kind});
  for (const auto& constant : constants_)
    copy.constants_.push_back({copied(constant.value), constant.tensor, constant.variable});
  for (const auto& node : nodes_) {
    auto twin = std::make_unique<Node>(Node{node->op, {}, {}, node->source});
    for (const auto& operand : node->operands) twin->operands.push_back(mapped(operand, map));
    for (const Value* result : node->results) {
      twin->results.push_back(copied(result));
      twin->results.back()->producer = twin.get();
    }
    copy.nodes_.push_back(std::move(twin));
  }
  for (const Value* output : outputs_) copy.outputs_.push_back(map.at(output));
  copy.output_names_ = output_names_;
  copy.next_id_ = next_id_;
  copy.recorded_types_ = recorded_types_;
  return copy;
}

}  // namespace triage::graph
