#pragma once
#include <triage/graph.h>

#include <functional>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace triage::fused {

/// The nodes of a graph that are in no part yet. Who asks for those that can run is shown these alone, however many
/// wait: a graph that alternates between loops and calls of ATen has as many parts as nodes.
class WaitingNodes {
 public:
  using Values = std::unordered_set<const graph::Value*>;

  explicit WaitingNodes(const graph::Graph& graph);
  bool empty() const { return left_ == 0; }
  size_t count() const { return left_; }
  bool has(const graph::Node& node) const { return is_waiting_[numbers_.at(&node)]; }
  bool is_there(const graph::Value* value) const { return there_.count(value) != 0; }
  /// The nodes that read `value`, waiting or not, each once.
  const std::vector<const graph::Node*>& users(const graph::Value* value) const;

  /// Puts them in the order that they have in the graph.
  void sort(std::vector<const graph::Node*>& nodes) const;

  /// The nodes have run: their results are there.
  void finish(const std::vector<const graph::Node*>& nodes);

  /// Shows `take` the nodes all of whose operands are there, among `made`, or results of nodes that it has taken (by
  /// returning true), in their order in the graph.
  void walk(const Values& made, const std::function<bool(const graph::Node&)>& take) const;

  /// The waiting nodes that keep their order among themselves (graph::has_order).
  std::vector<const graph::Node*> ordered() const;

  /// The first sizes of tensors that are there and that a waiting node for loops reads, those first that most such
  /// nodes read.
  std::vector<int64_t> batches() const;

 private:
  void add_to_batches(const graph::Value* value, int64_t readers);
  void make_there(const graph::Value* value);

  std::vector<const graph::Node*> nodes_;
  std::unordered_map<const graph::Node*, size_t> numbers_;
  std::vector<bool> is_waiting_, is_for_loops_;
  std::vector<size_t> missing_;  // operands that are not there, each once
  size_t left_ = 0;
  std::set<size_t> ready_;    // that wait and miss nothing
  std::set<size_t> ordered_;  // that wait and keep their order
  Values there_;
  std::unordered_map<const graph::Value*, std::vector<const graph::Node*>> users_;
  std::map<int64_t, int64_t> batches_;  // first sizes, by how many waiting nodes for loops read such a tensor
};

}  // namespace triage::fused
