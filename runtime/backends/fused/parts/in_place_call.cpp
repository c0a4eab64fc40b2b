#include "runtime/backends/fused/parts/in_place_call.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <algorithm>

#include "runtime/backends/deadline.h"
#include "runtime/backends/eager.h"
#include "runtime/compat/autocast.h"
#include "runtime/graph/evaluation/evaluate.h"
#include "runtime/operators/semantics.h"
#include "runtime/operators/untrusted.h"

namespace triage::fused {
namespace {

/// `relu_` of `relu`: the same arguments, of which it writes to the first.
std::optional<c10::OperatorHandle> writing_form(const graph::Node& node) {
  const auto& name = node.op.operator_name();
  const auto found = c10::Dispatcher::singleton().findSchema({name.name + "_", name.overload_name});
  if (!found) return std::nullopt;
  const auto &given = node.op.schema().arguments(), &own = found->schema().arguments();
  const bool same =
      given.size() == own.size() && !own.empty() && own[0].alias_info() && own[0].alias_info()->isWrite() &&
      std::equal(given.begin(), given.end(), own.begin(),
                 [](const auto& a, const auto& b) { return a.name() == b.name() && *a.type() == *b.type(); });
  return same ? std::optional(*found) : std::nullopt;
}

}  // namespace

bool InPlaceCall::takes(const graph::Node& node) {
  using operators::Semantics;
  const Semantics semantics = operators::semantics_of(node.op);
  if (node.results.size() != 1 || node.checks || semantics.sizes != operators::ResultSizes::broadcast ||
      semantics.has(Semantics::judges_values) || semantics.has(Semantics::judges_whole) || !writing_form(node))
    return false;  // who raises for a value may have written others
  const graph::Value* const first = node.operands[0].value();
  const auto& made = node.results[0]->meta;
  return first && first->producer && first->meta && made && first->meta->sizes == made->sizes &&
         first->meta->dtype == made->dtype && made->device.is_cpu() &&
         c10::multiply_integers(made->sizes) > 1;  // one may be a number of the plan
}

InPlaceCall::InPlaceCall(const FusionGroup& part)
    : graph_(part.graph.clone()),
      interpreter_(compile_eager_as_it_is(graph_)),
      op_(*writing_form(*graph_.nodes().back())) {}

/// As at capture: a tensor of another dtype might ask for a result of another, one of other dims might be larger.
bool InPlaceCall::can_run(at::ArrayRef<at::Tensor> inputs, const CallContext& call) const {
  if (inputs.size() != graph_.inputs().size() || operators::Untrusted::current() || compat::autocast(c10::kCPU).enabled)
    return false;
  for (const auto& constant : graph_.constants())
    if (constant.tensor.requires_grad()) return false;
  const graph::Value* const first = graph_.nodes().back()->operands[0].value();
  const at::Tensor* written = nullptr;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!is_as_seen(inputs[i], graph_.inputs()[i].value->meta) || inputs[i].requires_grad()) return false;
    if (graph_.inputs()[i].value == first) written = &inputs[i];
  }
  if (!written || !written->is_contiguous() || written->is_inference() ||
      std::none_of(call.donated.begin(), call.donated.end(),
                   [&](const at::Tensor& given) { return given.is_same(*written); }))
    return false;
  return std::all_of(inputs.begin(), inputs.end(), [&](const at::Tensor& input) {
    return input.is_same(*written) || at::is_expandable_to(input.sizes(), written->sizes());
  });
}

void InPlaceCall::run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs,
                      const CallContext& call) const {
  if (!can_run(inputs, call)) return interpreter_->run(inputs, outputs, {call.deadline});
  check_deadline(call.deadline);
  const graph::Lookup lookup = [&](const graph::Value* value) {
    for (size_t i = 0; i < inputs.size(); ++i)
      if (graph_.inputs()[i].value == value) return inputs[i];
    for (const auto& constant : graph_.constants())
      if (constant.value == value) return constant.tensor;
    throw GraphError("fused: a value that is not there");
  };
  std::vector<c10::IValue> stack = graph::boxed_arguments(*graph_.nodes().back(), lookup);
  try {
    op_.callBoxed(&stack);
  } catch (const c10::Error&) {  // before it wrote; the interpreter says where, and what of
    return interpreter_->run(inputs, outputs, {call.deadline});
  }
  outputs.push_back(std::move(stack.at(0)).toTensor());
}

}  // namespace triage::fused
