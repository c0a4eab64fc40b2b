#include "runtime/backends/fused/waiting_nodes.h"

#include <algorithm>

#include "runtime/backends/fused/lowering/lowering.h"
#include "runtime/graph/passes/uses.h"
#include "runtime/graph/text/describe.h"

namespace triage::fused {

using graph::Graph;
using graph::Node;
using graph::Value;

namespace {

std::vector<const Value*> distinct_operands(const Node& node) {
  std::vector<const Value*> values;
  graph::for_each_use(node, [&](const Value* value) { values.push_back(value); });
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

}  // namespace

WaitingNodes::WaitingNodes(const Graph& graph) : left_(graph.nodes().size()) {
  for (const auto& node : graph.nodes()) {
    const size_t number = nodes_.size();
    nodes_.push_back(node.get());
    numbers_[node.get()] = number;
    is_waiting_.push_back(true);
    is_for_loops_.push_back(can_lower(graph::op_name(node->op)));
    const std::vector<const Value*> operands = distinct_operands(*node);
    missing_.push_back(operands.size());
    for (const Value* value : operands) users_[value].push_back(node.get());
    if (operands.empty()) ready_.insert(number);
    if (graph::has_order(*node)) ordered_.insert(number);
  }
  for (const auto& input : graph.inputs()) make_there(input.value);
  for (const auto& constant : graph.constants()) make_there(constant.value);
}

const std::vector<const Node*>& WaitingNodes::users(const Value* value) const {
  static const auto& none = *new std::vector<const Node*>;
  const auto found = users_.find(value);
  return found == users_.end() ? none : found->second;
}

void WaitingNodes::make_there(const Value* value) {
  if (!there_.insert(value).second) return;
  int64_t readers = 0;
  for (const Node* user : users(value)) {
    const size_t number = numbers_.at(user);
    readers += is_waiting_[number] && is_for_loops_[number];
    if (--missing_[number] == 0 && is_waiting_[number]) ready_.insert(number);
  }
  add_to_batches(value, readers);
}

void WaitingNodes::add_to_batches(const Value* value, int64_t readers) {
  if (readers == 0 || !value->meta || value->meta->sizes.empty()) return;
  const auto place = batches_.try_emplace(value->meta->sizes[0]).first;
  if ((place->second += readers) == 0) batches_.erase(place);
}

void WaitingNodes::finish(const std::vector<const Node*>& nodes) {
  for (const Node* node : nodes) {
    const size_t number = numbers_.at(node);
    is_waiting_[number] = false;
    --left_;
    ready_.erase(number);
    ordered_.erase(number);
    if (!is_for_loops_[number]) continue;
    for (const Value* value : distinct_operands(*node))
      if (is_there(value)) add_to_batches(value, -1);
  }
  for (const Node* node : nodes)
    for (const Value* result : node->results) make_there(result);
}

void WaitingNodes::walk(const Values& made, const std::function<bool(const Node&)>& take) const {
  std::set<size_t> next = ready_;
  std::unordered_map<size_t, size_t> missing;  // of nodes that read what is made here
  const auto make = [&](const Value* value) {
    if (is_there(value)) return;
    for (const Node* user : users(value)) {
      const size_t number = numbers_.at(user);
      if (!is_waiting_[number]) continue;
      const auto left = missing.try_emplace(number, missing_[number]).first;
      if (--left->second == 0) next.insert(number);
    }
  };
  for (const Value* value : made) make(value);
  while (!next.empty()) {
    const Node& node = *nodes_[*next.begin()];
    next.erase(next.begin());
    graph::count_visits();
    if (take(node))
      for (const Value* result : node.results) make(result);
  }
}

void WaitingNodes::sort(std::vector<const Node*>& nodes) const {
  const auto number = [&](const Node* node) { return numbers_.at(node); };
  std::sort(nodes.begin(), nodes.end(), [&](const Node* a, const Node* b) { return number(a) < number(b); });
}

std::vector<const Node*> WaitingNodes::ordered() const {
  std::vector<const Node*> list;
  for (const size_t number : ordered_) list.push_back(nodes_[number]);
  return list;
}

std::vector<int64_t> WaitingNodes::batches() const {
  std::vector<std::pair<int64_t, int64_t>> counted;
  for (const auto& [batch, readers] : batches_) counted.emplace_back(-readers, batch);
  std::sort(counted.begin(), counted.end());
  std::vector<int64_t> sizes;
  for (const auto& [readers, batch] : counted) sizes.push_back(batch);
  return sizes;
}

}  // namespace triage::fused
