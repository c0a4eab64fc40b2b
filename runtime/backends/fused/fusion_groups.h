#pragma once
#include <triage/graph.h>

#include <optional>
#include <unordered_set>
#include <vector>

#include "runtime/backends/fused/loop_ir.h"

namespace triage::fused {

/// A result of `cat` (or `stack`) whose pieces loops compute, and write to their places in it.
struct Concatenation {
  size_t output;  // index into FusionGroup::outputs
  int64_t dim;
  bool stacks;
  std::vector<size_t> pieces;  // indices into Loops::outputs
};

/// A part of a graph: a graph of its own, whose inputs and outputs are values of the whole.
struct FusionGroup {
  graph::Graph graph;
  std::vector<const graph::Value*> inputs;   // of the whole graph, in the order of graph.inputs()
  std::vector<const graph::Value*> outputs;  // likewise
  std::vector<const graph::Node*> nodes;     // likewise, those that it computes
  bool fused = false;                        // computed by `loops`; else by ATen
  bool pooled = false;                       // one call of ATen that writes to memory it is given (parts/pooled_call.h)
  bool in_place = false;  // one call of ATen that can write to its first argument (parts/in_place_call.h)
  Loops loops;            // reads inputs[LoopInput::argument]; first those of `outputs` that are no joins, then pieces
  std::vector<Concatenation> joins;
  /// Index of an earlier part, of another call of the same region: its code runs this one too, and has `graph`, `loops`
  /// and `joins`.
  std::optional<size_t> same_as = {};
};

/// Cuts a graph into parts that run one after the other: groups that loops over rows compute, and what is left between
/// them. Random operators and assertions keep their order. Calls of regions are parts by themselves (regions.h).
/// `device`: where its loops run.
std::vector<FusionGroup> cut(const graph::Graph& graph, c10::Device device = at::kCPU);

/// `calls`: nodes that are no loop's, though one could compute them; else the views that strided_views.h finds.
std::vector<FusionGroup> cut(const graph::Graph& graph, c10::Device device,
                             std::unordered_set<const graph::Node*> calls);

/// A call of ATen was planned for a tensor such as `seen` at capture: of as many dims, of that dtype, on the CPU.
bool is_as_seen(const at::Tensor& tensor, const std::optional<graph::TensorMeta>& seen);

/// A tensor of no dims, wherever it is.
inline bool is_number(const graph::Value* value) { return value->meta && value->meta->sizes.empty(); }

}  // namespace triage::fused
