#pragma once
#include <triage/graph.h>

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

/// Which values of a graph may lie in one memory, and which of that a caller can see.
namespace triage::graph {

/// What a call does with the memory of its arguments.
enum class Sharing : uint8_t {
  none,   // results have memory of their own
  maybe,  // strides, dtypes or options decide (`contiguous`, `to`)
  always  // views, and what hands its argument back
};
Sharing sharing(const c10::OperatorHandle& op);  // whatever its arguments are
Sharing sharing(const Node& node);

/// Whether a value is a view in which one element of memory stands in many places (`expand`): who writes to it is told
/// so.
bool repeats_elements(const Value* value);

/// Whether results may have the memory of this argument; of an operator that shares.
bool may_share(const c10::OperatorHandle& op, size_t argument);

/// Calls `visit(Value*)` for each argument whose memory results of the call may share.
void for_each_shared(const Node& node, const std::function<void(Value*)>& visit);

/// Values whose memory an output may have: outputs, and what they are views of, through any number of calls. Whether
/// two of them are one memory or two, and one tensor or two, shows behind the graph.
std::unordered_set<const Value*> seen_through_outputs(const Graph& graph);

/// Makes reshapes of the views in other sizes of what is computed from `values`, and adds all that is computed from
/// them. It is for values that need not lie in memory as they did when the graph was recorded: whether they can be
/// viewed so is not known. A reshape has the same elements, and nobody writes to it.
void reshape_what_follows(Graph& graph, std::unordered_set<const Value*>& values);

/// Where the memory of the outputs of a graph comes from.
class OutputMemory {
 public:
  struct MemoryOrigin {
    std::vector<const Value*> roots;  // that it may be the memory of: inputs, constants, results of calls
    bool maybe = false;               // or it is a copy
  };
  struct Lookers {
    size_t outputs = 0;  // different values with this memory
    bool maybe = false;  // some of them may be copies
  };
  explicit OutputMemory(const Graph& graph);
  const MemoryOrigin& origin(const Value* value);
  /// Those of a root; null where no output has its memory.
  const Lookers* lookers(const Value* root) const;
  /// Whether strides decide which outputs share memory that the graph computes.
  bool depends_on_strides() const;
  static bool is_view(const Value* value) { return value->producer && sharing(*value->producer) != Sharing::none; }

 private:
  MemoryOrigin origin_by_arguments(const Value* value) const;

  std::unordered_map<const Value*, MemoryOrigin> origins_;
  std::unordered_map<const Value*, Lookers> lookers_;
};

}  // namespace triage::graph
