#include "runtime/backends/fused/outside_loops.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <unordered_map>

#include "runtime/backends/fused/fusion_groups.h"
#include "runtime/backends/fused/lowering/lowering.h"
#include "runtime/backends/fused/regions.h"
#include "runtime/graph/copy.h"
#include "runtime/graph/passes/uses.h"
#include "runtime/graph/text/describe.h"
#include "runtime/messages/printable.h"
#include "runtime/operators/semantics.h"

namespace triage::fused {
namespace {

using graph::Graph;
using graph::Node;
using graph::Value;
using operators::Semantics;

/// Operators that loops cannot have, by what they do.
struct Family {
  std::vector<std::string_view> stems;  // how names begin, behind "aten::"
  const char* reason;
};
const std::vector<Family>& families() {
  static const auto& list = *new std::vector<Family>{
      {{"mm", "bmm", "matmul", "linear", "addmm", "baddbmm", "conv", "einsum", "scaled_dot_product", "dot", "mv"},
       "it multiplies matrices, which is left to ATen's libraries; the operations around it are in loops"},
      {{"sort", "argsort", "msort", "topk", "kthvalue", "median", "nanmedian", "mode", "quantile", "unique"},
       "it puts elements in order; amax, amin, argmax, any and comparisons with a limit need no order"},
      {{"cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "diff"},
       "each element depends on those before it; sums, means and other reductions of whole rows are in loops"},
      {{"gather", "scatter", "index", "take", "embedding", "roll", "flip", "put", "repeat", "tile"},
       "it takes elements from other places; torch.where and masks leave elements where they are"},
      {{"cat", "stack"},
       "it joins tensors along the batch, or tensors that no loop makes; along other dims loops write to its result"},
      {{"transpose", "permute", "t", "movedim", "swapaxes", "select", "slice", "narrow", "split", "chunk", "unbind",
        "as_strided", "unfold", "diagonal"},
       "it is a view of other places, which copies nothing; loops read it as an input"},
      {{"sum", "mean", "prod", "max", "min", "any", "all", "std", "var", "norm", "amax", "amin", "argmax", "argmin"},
       "it reduces the whole batch; loops reduce each row, as in x:sum(-1)"},
  };
  return list;
}

bool is_of(const std::string& stem, std::string_view family) {
  return stem == family || (stem.size() > family.size() && stem.rfind(family, 0) == 0 && stem[family.size()] == '_') ||
         (family == "conv" && stem.rfind(family, 0) == 0);
}

std::string reason_of_name(const Node& node) {
  const std::string& name = node.op.operator_name().name;
  const std::string stem = name.substr(name.find("::") + 2);
  for (const Family& family : families())
    for (const std::string_view one : family.stems)
      if (is_of(stem, one)) return family.reason;
  return "loops do not have this operator; docs/backends.md lists those that they have";
}

/// The call by itself, on values of other types or with numbers in the place of those that are known at run time only.
struct CallVariant {
  std::function<void(graph::TensorMeta&)> type = [](graph::TensorMeta&) {};
  bool numbers = false;
};
bool would_be_in_a_loop(const Node& node, const CallVariant& changed) {
  Graph made("call");
  graph::Copies copies;
  std::vector<int64_t> batches;
  graph::for_each_use(node, [&](const Value* value) {
    if (copies.count(value)) return;
    copies[value] = made.add_input("in" + std::to_string(copies.size()), graph::InputKind::tensor, value->meta);
    graph::MutableValue& twin = made.edit(copies[value]);
    twin.is_flags = value->is_flags;
    if (!twin.meta) return;
    changed.type(*twin.meta);
    if (!twin.meta->sizes.empty()) batches.push_back(twin.meta->sizes[0]);
  });
  Node* const call = graph::copy_node(made, node, copies);
  for (size_t i = 0; i < call->results.size(); ++i)
    if (auto& meta = made.edit(call->results[i]).meta) changed.type(*meta);
  for (graph::Operand& operand : call->operands)
    if (changed.numbers && operand.value() && operand.value()->meta && operand.value()->meta->sizes.empty())
      operand = c10::IValue(int64_t{1});
  return std::any_of(batches.begin(), batches.end(), [&](int64_t batch) { return Lowering(batch).add(*call); });
}

void make_single(graph::TensorMeta& meta) {
  if (at::isFloatingType(meta.dtype)) meta.dtype = at::kFloat;
}
void make_all_single(graph::TensorMeta& meta) {
  if (meta.dtype != at::kBool) meta.dtype = at::kFloat;
}

/// Whether the dims that the call names have the batch's among them, or all.
bool reduces_the_batch(const Node& node) {
  const auto& arguments = node.op.schema().arguments();
  const Value* const x = node.operands[0].value();
  if (!x || !x->meta) return false;
  const auto is_batch = [&](int64_t dim) { return dim == 0 || dim == -static_cast<int64_t>(x->meta->sizes.size()); };
  for (size_t i = 1; i < arguments.size(); ++i) {
    const auto* given = node.operands[i].constant();
    if (arguments[i].name() != "dim" || !given) continue;
    if (given->isNone()) return true;
    if (given->isInt()) return is_batch(given->toInt());
    if (!given->isIntList()) continue;
    const auto dims = given->toIntVector();
    return dims.empty() || std::any_of(dims.begin(), dims.end(), is_batch);
  }
  return false;
}

/// Of an operator that loops have.
std::string reason_of_call(const Node& node) {
  if (would_be_in_a_loop(node, {}))
    return "it is no longer alone in a loop than in ATen; with another operation on the same rows beside it, it is in "
           "one";
  if (reduces_the_batch(node)) return "it reduces the batch (dim 0); loops reduce the other dims, as in x:sum(-1)";
  CallVariant numbers;
  numbers.numbers = true;
  if (would_be_in_a_loop(node, numbers))
    return "it takes a number that is not known before the call; loops take one that is written in the script here";
  if (would_be_in_a_loop(node, {make_single}))
    return "loops do not compute it in this dtype; convert with :float() before it";
  if (would_be_in_a_loop(node, {make_all_single}))
    return "loops do not compute it for these dtypes together; convert its arguments with :float() before it";
  return "its arguments are no rows of one batch: loops take tensors with as many rows as the batch in front, or one "
         "that is the same "
         "for all rows";
}

}  // namespace

std::string why_outside(const Node& node) {
  if (graph::is_random(node.op)) return "it draws random numbers, in the order of the script";
  if (graph::has_order(node)) return "it may raise or has an effect, and keeps its place among such calls";
  const Semantics semantics = operators::semantics_of(node.op);
  if (semantics.has(Semantics::dynamic | Semantics::dynamic_by_mask | Semantics::dynamic_by_classes))
    return "values decide the size of its result; torch.where and masked_fill keep all places";
  if (is_host_call(node)) return "it makes a number of numbers, which no loop reads";
  if (!can_lower(graph::op_name(node.op))) return reason_of_name(node);
  if (!node.results.empty() && std::all_of(node.results.begin(), node.results.end(), is_number))
    return "it makes a number of numbers, which no loop reads";
  return reason_of_call(node);
}

std::vector<std::string> calls_outside_loops(const Graph& graph) {
  std::vector<std::string> lines;
  if (!graph.has_recorded_types() || largest_cut(graph) > most_nodes) return lines;
  for (const FusionGroup& part : cut(graph)) {
    if (part.fused) continue;
    for (const Node* node : part.nodes) {
      const std::string place = node->source.file.empty()
                                    ? ""
                                    : fmt::format("{}:{}: ", messages::one_line(node->source.file), node->source.line);
      lines.push_back(fmt::format("{}{}: {}", place, graph::op_name(node->op), why_outside(*node)));
    }
  }
  return lines;
}

}  // namespace triage::fused
