#include "runtime/export/sameness.h"

#include <ATen/ATen.h>
#include <triage/error.h>

#include <numeric>

#include "runtime/capture/variables.h"
#include "runtime/export/shapes.h"
#include "runtime/graph/uses.h"
#include "runtime/random/sequence.h"

namespace triage::exporting {
namespace {

using capture::Recorder;
using graph::Graph;

/// Four inputs of one type can be the same in so many ways besides being four. With more of them the graph is held to what
/// the inputs are.
constexpr size_t kMostSamenesses = 14;

/// Whether some call of the program may pass one tensor for both.
bool can_be_one(at::ArrayRef<at::Tensor> inputs, const ExportOptions& options, size_t i, size_t j) {
  const at::Tensor &a = inputs[i], &b = inputs[j];
  if (a.scalar_type() != b.scalar_type() || a.device() != b.device() || a.dim() != b.dim()) return false;
  for (int64_t dim = 0; dim < a.dim(); ++dim)
    if (a.size(dim) != b.size(dim) && symbol_of(options, i, dim).empty() && symbol_of(options, j, dim).empty())
      return false;
  return true;
}

/// All ways in which inputs can be the same; ends early, with one too many, where there are more than anybody wants.
std::vector<Sameness> samenesses(at::ArrayRef<at::Tensor> inputs, const ExportOptions& options) {
  std::vector<Sameness> found(1);  // for the inputs before `next`: there are no fewer for all of them
  for (size_t next = 0; next < inputs.size(); ++next) {
    std::vector<Sameness> longer;
    for (const Sameness& same : found) {
      std::vector<bool> joins(next + 1, false);  // inputs that are the first of their kind, and may be this one, too
      for (size_t i = 0; i < next; ++i)
        joins[same[i]] = (same[i] == i || joins[same[i]]) && can_be_one(inputs, options, i, next);
      joins[next] = true;
      for (size_t first = 0; first <= next && longer.size() <= kMostSamenesses + 1; ++first) {
        if (!joins[first]) continue;
        longer.push_back(same);
        longer.back().push_back(first);
      }
    }
    found = std::move(longer);
    if (found.size() > kMostSamenesses + 1) break;
  }
  return found;
}

/// The text of what a graph computes, whatever the sizes of its examples were.
std::string computation(const Graph& recorded, const Sameness& same) {
  Graph graph = recorded.clone();
  graph::Replacements replacements;
  for (size_t i = 0; i < same.size(); ++i)
    if (same[i] != i) replacements[graph.inputs()[i].value] = graph.inputs()[same[i]].value;
  graph::replace_uses(graph, replacements);
  graph::clean(graph);
  for (const auto& input : graph.inputs()) input.value->is_flags = false;
  for (auto& node : graph.nodes())
    for (graph::Value* result : node->results) result->meta.reset();
  return graph::print(graph);
}

/// Whether the graph that was recorded with all inputs apart computes what the function does when they are not.
bool holds_for(const Graph& apart, const Sameness& same, const std::function<Graph(const Sameness&)>& graph_of) {
  try {
    return computation(apart, same) == computation(graph_of(same), same);
  } catch (const LimitError&) {
    throw;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

Sameness sameness_of(at::ArrayRef<at::Tensor> inputs) {
  Sameness same;
  for (const at::Tensor& input : inputs) same.push_back(capture::number_among(inputs, input));
  return same;
}

Recorded record_for_all_samenesses(at::ArrayRef<at::Tensor> inputs, const ExportOptions& options,
                                   const std::function<Recorder::Result(const Sameness&)>& record) {
  const Sameness given = sameness_of(inputs);
  Recorded own{record(given), std::nullopt};
  const std::vector<Sameness> all = samenesses(inputs, options);
  if (all.size() == 1) return own;
  if (all.size() > kMostSamenesses + 1) {
    own.held_to = given;
    return own;
  }
  const random::Replay unseen(true);
  Sameness all_apart(inputs.size());
  std::iota(all_apart.begin(), all_apart.end(), size_t{0});
  const auto graph_of = [&](const Sameness& same) {
    return same == given ? own.result.graph.clone() : std::move(record(same).graph);
  };
  std::optional<Recorder::Result> apart;
  try {
    if (given != all_apart) apart = record(all_apart);
  } catch (const LimitError&) {
    throw;
  } catch (const std::exception&) {
    own.held_to = given;
    return own;
  }
  const Graph& general = apart ? apart->graph : own.result.graph;
  for (const Sameness& same : all) {
    if (same == all_apart || holds_for(general, same, graph_of)) continue;
    own.held_to = given;
    return own;
  }
  return apart ? Recorded{std::move(*apart), std::nullopt} : std::move(own);
}

}  // namespace triage::exporting
