#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/backends/aot/joint.h"
#include "runtime/backends/aot/taint.h"
#include "runtime/graph/passes/uses.h"
#include "runtime/graph/text/describe.h"
#include "runtime/operators/semantics.h"

// Two runs differ only in what the samples hold in one row, and a selection masks that row in both. What differs in a
// gradient behind the joint graph is a leak. Masks select what differs, so `where` and `masked_fill` cut it off
// (Taint). The rules are about sizes and not about values: the first and the last row stand for all.
//
// This does not trust the pass that masks rows: an operator for which that pass has no rule, or a wrong one, shows as a
// leak.

namespace triage::aot {
namespace {

using graph::Graph;
using graph::Node;
using graph::Value;
using operators::semantics_of;

constexpr size_t most_masks = 16;

const std::vector<int64_t>& sizes_in(const Value* value) { return value->meta->sizes; }

/// The mask over rows that others are made of by turning it around and by moving its dimensions.
struct RowMask {
  const Value* value;
  bool holds;  // where a row is masked
  friend bool operator==(const RowMask&, const RowMask&) = default;
};

RowMask origin_of(RowMask mask) {
  while (const Node* node = mask.value->producer) {
    const Value* before = node->operands.empty() ? nullptr : node->operands[0].value();
    if (!before || !before->meta || before->meta->dtype != at::kBool || elements_of(before) != elements_of(mask.value))
      break;
    static const auto& moves = *new std::unordered_set<std::string>{
        "aten::view",  "aten::_unsafe_view", "aten::reshape", "aten::unsqueeze", "aten::squeeze",  "aten::expand",
        "aten::alias", "aten::detach",       "aten::clone",   "aten::t",         "aten::transpose"};
    const std::string& name = node->op.operator_name().name;
    const bool turns = name == "aten::logical_not" || name == "aten::bitwise_not";
    if (!turns && !moves.count(name)) break;
    mask = {before, mask.holds != turns};
  }
  return mask;
}

/// The proof for one row of the samples, while a mask masks some of the rows that it selects.
class TaintedRow {
 public:
  TaintedRow(const Joint& joint, at::ArrayRef<at::Tensor> primals, const std::vector<RowMask>& masks, size_t mask,
             int64_t row, const at::Tensor& masked)
      : joint_(joint),
        graph_(joint.graph),
        mask_(masks[mask]),
        rows_(elements_of(mask_.value)),
        masked_(masked),
        chooses_(std::find(masks.begin(), masks.end(), RowMask{mask_.value, !mask_.holds}) != masks.end()),
        taint_(joint.graph) {
    for (const RowMask& other : masks)
      taint_.hold(other.value, at::full(sizes_in(other.value), !other.holds, at::kBool));
    const at::Tensor own = mask_.holds ? masked : masked.logical_not();
    taint_.hold(mask_.value, own.view(sizes_in(mask_.value)));
    for (const auto& constant : graph_.constants())
      if (!holds_floats(constant.value) && !graph_.is_variable(constant.value))
        taint_.know(constant.value, constant.tensor);
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      const Value* input = graph_.inputs()[i].value;
      if (i >= joint.num_primals) of_tangents_.insert(input);
      if (i < joint.num_primals && !holds_floats(input)) taint_.know(input, primals[i].detach());
      if (i < joint.num_primals && joint.samples[i]) taint_sample(input, primals[i].requires_grad(), row);
    }
  }

  /// For each mask the rows that differ where it selects.
  std::unordered_map<const Value*, at::Tensor> selected_rows() {
    visit_all();
    return std::move(selected_);
  }

  std::optional<GradientLeak> run() {
    visit_all();
    if (chooses_ && !masks_row_) return std::nullopt;  // the row stays, with one of two values
    const auto& outputs = graph_.outputs();
    size_t next = joint_.num_outputs;
    for (size_t i = 0; i < joint_.num_primals; ++i) {
      if (!joint_.has_gradient[i]) continue;
      const Value* gradient = outputs[next++];
      if (const at::Tensor beyond = beyond_own_row(gradient, graph_.inputs()[i].value); beyond.defined())
        return leak_into(gradient, graph_.inputs()[i].value->name);
    }
    return std::nullopt;
  }

 private:
  void visit_all() {
    for (const auto& node : graph_.nodes()) {
      taint_.visit(*node);
      note_tangents(*node);
      note_selection(*node);
    }
  }

  /// Samples lie along dim 0, several of the rows after one another where the input has a multiple of them.
  void taint_sample(const Value* input, bool requires_grad, int64_t row) {
    if (!holds_floats(input) || sizes_in(input).empty() || elements_of(input) == 0) return;
    const int64_t size = sizes_in(input)[0], each = size / rows_;
    if (each == 0 || size % rows_ != 0 || (each > 1 && requires_grad)) return;
    std::vector<int64_t> one(sizes_in(input).size(), 1);
    one[0] = size;
    const at::Tensor mine = at::zeros(one, at::kBool);
    mine.narrow(0, row * each, each).fill_(true);
    seeds_[input] = mine.expand(sizes_in(input));
    taint_.begin_with(input, seeds_[input]);
  }

  void note_tangents(const Node& node) {
    bool backward = false;
    graph::for_each_use(node, [&](const Value* value) { backward |= of_tangents_.count(value) != 0; });
    if (backward) of_tangents_.insert(node.results.begin(), node.results.end());
  }

  /// Whether a selection of the forward run by this mask leaves nothing of the row.
  void note_selection(const Node& node) {
    const std::string& name = node.op.operator_name().name;
    if (node.results.empty() || !node.results[0]->meta || of_tangents_.count(node.results[0])) return;
    const Value* mask = nullptr;
    const auto rule = semantics_of(node.op).masked_rows;
    if (rule == operators::MaskedRows::where || name == "triage::select")
      mask = node.operands[0].value();
    else if (rule == operators::MaskedRows::masked_fill)
      mask = node.operands[1].value();
    else if (const Node* match = taint_.search_of(node))
      mask = match->results[0];
    if (!mask || !mask->meta) return;
    const Value* origin = origin_of({mask, true}).value;
    const int64_t count = elements_of(origin);
    const at::Tensor tainted = taint_.of(node.results[0]);
    const bool has_rows = tainted.defined() && tainted.dim() > 0 && count > 0 && tainted.size(0) == count;
    const at::Tensor rows = has_rows ? tainted.reshape({count, -1}).any(1) : at::Tensor();
    if (at::Tensor& known = selected_[origin]; has_rows) known = known.defined() ? at::logical_or(known, rows) : rows;
    if (origin == mask_.value) masks_row_ |= !has_rows || !at::logical_and(rows, masked_).any().item<bool>();
  }

  // --- what is left

  /// The elements of a gradient that differ, those of the row itself left out: what becomes of a masked row is its own
  /// matter.
  at::Tensor beyond_own_row(const Value* gradient, const Value* primal) const {
    const at::Tensor tainted = taint_.of(gradient);
    if (!tainted.defined()) return {};
    const auto own = seeds_.find(primal);
    if (own == seeds_.end()) return tainted;
    const at::Tensor beyond = at::logical_and(tainted, at::logical_not(own->second));
    return beyond.any().item<bool>() ? beyond : at::Tensor();
  }

  /// From the gradient back to the call at which the row's values came in.
  GradientLeak leak_into(const Value* gradient, const std::string& primal) const {
    const Node* node = gradient->producer;
    while (node) {
      const Node* before = nullptr;
      graph::for_each_use(*node, [&](const Value* value) {
        if (!before && value->producer && of_tangents_.count(value) && taint_.of(value).defined())
          before = value->producer;
      });
      if (!before) break;
      node = before;
    }
    if (const Node* mixing = first_that_mixes())
      return {fmt::format("`{}` may mix masked rows with others", graph::op_name(mixing->op)), mixing->source};
    if (!node) return {fmt::format("masked rows decide the gradient of `{}`", primal), {}};
    return {fmt::format("`{}` in the gradient of `{}` takes values of masked rows", graph::op_name(node->op), primal),
            node->source};
  }

  /// The first call of the forward run behind which other rows differ, or a value for all of them.
  const Node* first_that_mixes() const {
    for (const auto& node : graph_.nodes()) {
      bool mixes = false;
      for (const Value* result : node->results) mixes |= !of_tangents_.count(result) && differs_beyond_row(result);
      if (mixes) return node.get();
    }
    return nullptr;
  }

  bool differs_beyond_row(const Value* value) const {
    const at::Tensor tainted = taint_.of(value);
    if (!tainted.defined() || rows_ == 1 || !holds_floats(value)) return false;
    if (tainted.dim() == 0 || tainted.size(0) != rows_) return tainted.all().item<bool>();
    return tainted.reshape({rows_, -1}).any(1).sum().item<int64_t>() >
           std::max<int64_t>(masked_.sum().item<int64_t>(), 1);
  }

  const Joint& joint_;
  const Graph& graph_;
  const RowMask mask_;
  const int64_t rows_;
  const at::Tensor masked_;
  const bool chooses_;  // both that it selects and that it leaves out has gradients
  std::unordered_map<const Value*, at::Tensor> selected_;
  bool masks_row_ = false;
  Taint taint_;
  std::unordered_map<const Value*, at::Tensor> seeds_;
  std::unordered_set<const Value*> of_tangents_;
};

bool selects(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const auto& node) {
    const auto rule = semantics_of(node->op).masked_rows;
    const std::string& name = node->op.operator_name().name;
    return rule == operators::MaskedRows::where || rule == operators::MaskedRows::masked_fill ||
           name == "triage::select" || name == "triage::fix" || name.starts_with("triage::take_");
  });
}

/// A gradient that no gradient that comes in decides, but values of the samples do: what an operator without slope
/// (`sgn`) sends back is 0, and 0 times NaN is NaN.
std::optional<GradientLeak> find_leak_without_tangents(const Joint& joint) {
  std::unordered_set<const Value*> of_tangents, of_samples;
  const auto& inputs = joint.graph.inputs();
  for (size_t i = 0; i < inputs.size(); ++i)
    if (i >= joint.num_primals)
      of_tangents.insert(inputs[i].value);
    else if (joint.samples[i] && holds_floats(inputs[i].value))
      of_samples.insert(inputs[i].value);
  for (const auto& node : joint.graph.nodes())
    for (auto* values : {&of_tangents, &of_samples}) {
      bool uses = false;
      graph::for_each_use(*node, [&](const Value* value) { uses |= values->count(value) != 0; });
      if (uses) values->insert(node->results.begin(), node->results.end());
    }
  const auto& outputs = joint.graph.outputs();
  for (size_t i = joint.num_outputs; i < outputs.size(); ++i)
    if (const Node* node = outputs[i]->producer; node && of_samples.count(outputs[i]) && !of_tangents.count(outputs[i]))
      return GradientLeak{"a gradient of 0 is multiplied by values of masked rows", node->source};
  return std::nullopt;
}

}  // namespace

std::optional<GradientLeak> find_leak(const Joint& joint, at::ArrayRef<at::Tensor> primals) {
  const at::NoGradGuard no_grad;
  if (selects(joint.graph))  // what it selects has left the graph, with the gradients that nobody needs
    if (auto leak = find_leak_without_tangents(joint)) return leak;
  std::unordered_set<const Value*> used;
  for (const auto& node : joint.graph.nodes())
    graph::for_each_use(*node, [&](const Value* value) { used.insert(value); });
  std::vector<RowMask> masks;
  for (const auto& [value, holds] : joint.row_masks) {
    if (!used.count(value)) continue;  // it masks a gradient that nobody asks for
    const RowMask mask = origin_of({value, holds});
    if (elements_of(mask.value) > 0 && std::find(masks.begin(), masks.end(), mask) == masks.end())
      masks.push_back(mask);
  }
  // Each mask has a proof of its own: so there is a limit, for the time that a compile takes.
  if (masks.size() > most_masks)
    return GradientLeak{fmt::format("it has more than {} masks of rows, too many to prove it", most_masks), {}};
  for (const bool last : {false, true}) {
    std::unordered_map<const Value*, at::Tensor> selected;
    int64_t rows_of_selected = -1;
    for (size_t i = 0; i < masks.size(); ++i) {
      const int64_t rows = elements_of(masks[i].value), row = last ? rows - 1 : 0;
      const at::Tensor none = at::zeros({rows}, at::kBool);
      if (std::exchange(rows_of_selected, rows) != rows)
        selected = TaintedRow(joint, primals, masks, i, row, none).selected_rows();
      // The rows that it selects may stand in another order than the samples do. One that comes of several is not one
      // to mask.
      at::Tensor masked = selected[masks[i].value];
      if (!masked.defined() || masked.sum().item<int64_t>() != 1) {
        masked = none.clone();
        masked[row].fill_(true);
      }
      if (const auto leak = TaintedRow(joint, primals, masks, i, row, masked).run()) return leak;
    }
  }
  return std::nullopt;
}

}  // namespace triage::aot
