// In-place operators while capturing. The graph has no mutation: `x:add_(y)` is recorded as `add`, and x stands for the
// new value from then on. That is sound as long as nothing else looks at x's memory.
#include "runtime/capture/recording/autocast.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/rules/arguments.h"
#include "runtime/capture/rules/rules.h"
#include "runtime/graph/evaluation/restride.h"
#include "runtime/graph/passes/aliases.h"
#include "runtime/graph/passes/uses.h"

#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <string>
#include <unordered_set>

namespace triage::capture {
namespace {

/// Whether another tensor than the one written to may decide the sizes of the result.
bool broadcasts(const std::vector<c10::IValue>& operands) {
  for (size_t i = 1; i < operands.size(); ++i)
    if (operands[i].isTensor() && operands[i].toTensor().defined() && operands[i].toTensor().dim() > 0) return true;
  return false;
}

/// Whether the result of the twin of a write lies as the target does, for any strides that the target has in other
/// calls. Elementwise operators choose other strides for dims of one element, and convolutions choose a memory format
/// by these.
bool writes_in_order(const std::optional<c10::OperatorHandle>& twin, const at::Tensor& target) {
  if (target.dim() < 2 || (twin && graph::is_view(*twin))) return true;
  if (!twin || !graph::keeps_order(*twin)) return false;
  const auto sizes = target.sizes();
  return target.unsafeGetTensorImpl()->is_non_overlapping_and_dense() &&
         (target.dim() < 4 || std::find(sizes.begin(), sizes.end(), 1) == sizes.end());
}

/// Dropout of no elements hands its argument back. To write to a tensor that was computed is the same then; a view, or
/// a tensor that requires grad and was there before the call, may not be written to.
bool may_be_given_back(const graph::Node& node, const at::Tensor& result) {
  if (!graph::is_random(node.op) || graph::sharing(node.op) != graph::Sharing::maybe || !result.requires_grad())
    return false;
  const graph::Value* const argument = node.operands[0].value();
  const graph::Node* const computed = argument ? argument->producer : nullptr;
  return !computed || graph::sharing(*computed) != graph::Sharing::none;
}

/// The vectors of LibTorch 1.13 compare the two parts of complex numbers one by one where the answer takes their place.
bool compares(const c10::OperatorHandle& op) {
  static const auto& names = *new std::unordered_set<std::string>{"aten::eq_", "aten::ne_", "aten::not_equal_"};
  return names.count(op.operator_name().name) != 0;
}

}  // namespace

void Recorder::record_write(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const auto& arguments = op.schema().arguments();
  size_t first = stack.size() - arguments.size();
  auto stop = [&](const std::string& what, const std::string& hint) {
    capture::graph_break(Break::shared_write, "`" + base_name(op) + "` " + what, hint);
    tensors_.call_with_originals(op, stack);
  };
  if (arguments.empty() || !is_written(arguments[0]) || !stack[first].isTensor())
    return stop("writes to one of its arguments", "Use an operator that returns its result.");
  at::Tensor target = stack[first].toTensor();
  const TracedTensors::Traced* const found = tensors_.trace(target);
  if (!found || found->is_input || found->branch < 0)
    return stop("writes to a tensor that existed before the call", "Write to a copy: x:clone().");
  if (found->branch < branch_depth_)
    return stop("writes inside a branch of IF to a tensor made outside of it, and every branch runs",
                "Return the new value from the branch.");
  const graph::Node* producer = found->value->producer;
  if (producer && graph::sharing(*producer) == graph::Sharing::maybe)
    return stop("writes to the result of `" + base_name(producer->op) +
                    "`, which may share memory with its argument, depending on strides",
                "Write to a copy: x:clone().");
  if (tensors_.shares_memory(target))
    return stop("writes to a tensor that shares its memory with another tensor",
                "Use the form without the underscore, or clone first.");
  if (producer && may_be_given_back(*producer, target))
    return stop("writes to the result of `" + base_name(producer->op) + "`, which is its argument where that is empty",
                "Write to a copy: x:clone().");
  if (graph::is_random(op))
    return stop("fills a tensor with random numbers in place",
                "Use torch.rand_like, torch.randn_like or torch.bernoulli.");
  if (casts() && has_autocast(op, arguments_of(op, stack)))
    return stop("writes in place, and autocast casts its arguments", "Use the form without the underscore.");
  std::optional<c10::impl::ExcludeDispatchKeyGuard> uncast;  // autocast may know the twin, which stands for `op` here
  if (casts()) uncast.emplace(c10::autocast_dispatch_keyset);
  const auto apply = [&](const char* name, const char* overload, torch::jit::Stack given) {
    const auto operation = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
    torch::jit::Stack made = given;
    operation.callBoxed(&made);
    append(operation, given, made);
    return made.back().toTensor();
  };
  if (target.is_complex() && compares(op))
    return stop("compares complex numbers in place, which not all versions of LibTorch do as without the underscore",
                "Use the form without the underscore.");
  const bool copies = op.operator_name().name == "aten::copy_";  // its own twin has no derivative
  auto twin = copies ? std::nullopt : functional_twin(op);
  if (!twin && !copies)
    return stop("writes in place and has no form that returns its result", "Build the new tensor with torch.where.");

  std::vector<c10::IValue> operands(stack.begin() + static_cast<std::ptrdiff_t>(first), stack.end());
  torch::jit::Stack results = operands;
  if (copies) {
    const at::Tensor source =
        apply("aten::to", "dtype", {operands[1], target.scalar_type(), false, false, c10::IValue()});
    const at::Tensor whole = apply("aten::expand_as", "", {source, target});
    results = {apply("aten::clone", "", {whole, c10::IValue()})};
    for (const at::Tensor& view : {source, whole})
      tensors_.forget(view);  // of this write alone: no later one need mind them
  } else {
    twin->callBoxed(&results);
    if (results.back().toTensor().sizes() != target.sizes())
      return stop("would change the shape of the tensor that it writes to", "Use the form without the underscore.");
    append(*twin, operands, results);
  }
  const at::Tensor fresh = results.back().toTensor();
  if (!copies &&
      broadcasts(operands)) {  // in place, the target's sizes stay: where they would not, the graph must raise too
    static const auto expand_as = c10::Dispatcher::singleton().findSchemaOrThrow("aten::expand_as", "");
    operands = {results.back(), target};
    results = operands;
    expand_as.callBoxed(&results);
    append(expand_as, operands, results);
  }
  if (fresh.scalar_type() != target.scalar_type()) {  // in place, the target's dtype stays
    static const auto to_dtype = c10::Dispatcher::singleton().findSchemaOrThrow("aten::to", "dtype");
    operands = {results.back(), target.scalar_type(), false, false, c10::IValue()};
    results = operands;
    to_dtype.callBoxed(&results);
    append(to_dtype, operands, results);
  }
  // A result with the order of the target lies where the target does.
  if (!writes_in_order(twin, target)) {
    operands = {results.back(), target};
    results = operands;
    graph::restride().callBoxed(&results);
    append(graph::restride(), operands, results);
  }
  graph::Value* value = tensors_.value_of(results.back().toTensor());
  uncast.reset();
  if (casts()) {
    const CastCall call = call_under_autocast(op, stack);
    if (!call.refusal.empty()) {
      graph_break({Break::mode, "`" + base_name(op) + "` in an autocast scope: " + call.refusal,
                   "Use the form without the underscore, outside of the scope.", line(), ""});
      return;
    }
  } else {
    op.callBoxed(&stack);  // the script's tensor itself changes, as it would eagerly
  }
  const at::Tensor made = results.back().toTensor();
  if (target.requires_grad() != made.requires_grad())
    return graph_break(
        {Break::shared_write,
         "`" + base_name(op) + "` has no gradient, and ATen leaves what it writes to with that of before",
         "Use the form without the underscore.", line(), ""});
  if (found->value->is_flags) word_origins_.set_flags(graph_.edit(value));
  tensors_.rebind(target, value);
  sizes_.origins.replace(target, results.back().toTensor());
}

}  // namespace triage::capture
