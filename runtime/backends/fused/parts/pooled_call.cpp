#include "runtime/backends/fused/parts/pooled_call.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <unordered_map>

#include "runtime/backends/deadline.h"
#include "runtime/backends/eager.h"
#include "runtime/compat/autocast.h"
#include "runtime/graph/evaluation/evaluate.h"
#include "runtime/graph/text/describe.h"
#include "runtime/operators/semantics.h"
#include "runtime/operators/untrusted.h"

namespace triage::fused {
namespace {

std::optional<c10::OperatorHandle> out_variant(const graph::Node& node) {
  const auto& name = node.op.operator_name();
  const bool same_bits = operators::semantics_of(node.op).has(operators::Semantics::same_out);
  if (!same_bits || !name.overload_name.empty()) return std::nullopt;
  const auto found = c10::Dispatcher::singleton().findSchema({name.name, "out"});
  return found ? std::optional(*found) : std::nullopt;
}

/// These are calls of others, which for matrices are the same with and without `out`.
bool is_of_matrices(const graph::Node& node) {
  const auto is_matrix = [&](size_t operand) {
    const auto* value = node.operands[operand].value();
    return value && value->meta && value->meta->sizes.size() == 2;
  };
  const std::string name = graph::op_name(node.op);
  return (name != "aten::matmul" && name != "aten::linear") || (is_matrix(0) && is_matrix(1));
}

}  // namespace

bool PooledCall::takes(const graph::Node& node) {
  return node.results.size() == 1 && node.results[0]->meta && out_variant(node) && is_of_matrices(node);
}

PooledCall::PooledCall(const FusionGroup& part, OutputPool& pool)
    : graph_(part.graph.clone()),
      interpreter_(compile_eager(graph_, {})),
      op_(*out_variant(*graph_.nodes().back())),
      pool_(pool) {
  const auto& name = graph_.nodes().back()->op.operator_name();
  contract_ = operators::find_contract(name.name, name.overload_name);
}

/// The call without `out` is what the contract speaks of; the memory that `out` writes to belongs to nobody else.
bool PooledCall::is_held(const std::vector<c10::IValue>& arguments, const CallContext& call) const {
  const operators::Untrusted::Terms* const terms = operators::Untrusted::current();
  return !terms || !contract_ ||
         !operators::refusal(*contract_, graph_.nodes().back()->op.schema(), arguments, *terms, call.deadline);
}

/// As at capture: a tensor of another dtype would be converted into the result silently, one of other dims is another
/// call.
bool PooledCall::can_run(at::ArrayRef<at::Tensor> inputs) const {
  if (last_bytes_.load(std::memory_order_relaxed) < OutputPool::smallest || compat::autocast(c10::kCPU).enabled ||
      inputs.size() != graph_.inputs().size())
    return false;
  const auto records = [](const at::Tensor& tensor) { return at::GradMode::is_enabled() && tensor.requires_grad(); };
  for (const auto& constant : graph_.constants())
    if (records(constant.tensor)) return false;
  const at::ScalarType dtype = graph_.nodes().back()->results[0]->meta->dtype;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto& seen = graph_.inputs()[i].value->meta;
    if (!is_as_seen(inputs[i], seen) || records(inputs[i])) return false;
    if (at::isFloatingType(seen->dtype) && seen->dtype != dtype) return false;
  }
  return true;
}

void PooledCall::run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs, const CallContext& call) const {
  const CallContext inside{call.deadline};
  const size_t before = last_bytes_.load(std::memory_order_relaxed);
  if (!can_run(inputs)) {
    interpreter_->run(inputs, outputs, inside);
    last_bytes_.store(outputs.back().nbytes(), std::memory_order_relaxed);
    return;
  }
  check_deadline(call.deadline);
  std::unordered_map<const graph::Value*, at::Tensor> values;
  for (size_t i = 0; i < inputs.size(); ++i) values[graph_.inputs()[i].value] = inputs[i];
  for (const auto& constant : graph_.constants()) values[constant.value] = constant.tensor;
  const graph::Lookup lookup = [&](const graph::Value* value) { return values.at(value); };
  const graph::Node& last = *graph_.nodes().back();
  const at::ScalarType dtype = last.results[0]->meta->dtype;
  // Of no elements, on memory that is as large as the last result: the call gives it its sizes, and takes more where it
  // must.
  at::Tensor out = pool_.get({static_cast<int64_t>(before / c10::elementSize(dtype))}, dtype);
  out.unsafeGetTensorImpl()->set_sizes_contiguous({0});
  try {
    for (const auto& node : graph_.nodes())
      if (node.get() != &last) values[node->results[0]] = graph::evaluate(*node, lookup)[0];
    std::vector<c10::IValue> stack = graph::boxed_arguments(last, lookup);
    if (!is_held(stack, call)) return interpreter_->run(inputs, outputs, inside);
    stack.emplace_back(out);
    op_.callBoxed(&stack);
  } catch (const c10::Error&) {  // the interpreter says where, and what of
    return interpreter_->run(inputs, outputs, inside);
  }
  last_bytes_.store(out.nbytes(), std::memory_order_relaxed);
  outputs.push_back(std::move(out));
}

}  // namespace triage::fused
