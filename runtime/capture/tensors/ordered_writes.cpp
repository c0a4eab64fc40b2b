#include "runtime/capture/tensors/ordered_writes.h"

#include "runtime/capture/recording/recorder.h"
#include "runtime/memory/overlap.h"

namespace triage::capture {

bool scatter_in_order(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  static const auto in_place = c10::Dispatcher::singleton().findSchemaOrThrow("aten::masked_scatter_", "");
  static const auto scatter = c10::Dispatcher::singleton().findSchemaOrThrow("aten::masked_scatter", "");
  static const auto copy = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  if (&op.schema() != &in_place.schema()) return false;
  const size_t first = stack.size() - 3;
  torch::jit::Stack given(stack.begin() + static_cast<std::ptrdiff_t>(first), stack.end());
  const auto is_there = [](const c10::IValue& value) { return value.isTensor() && value.toTensor().defined(); };
  if (!is_there(given[0])) return false;
  const bool reads_itself = is_there(given[2]) && share_memory(given[0].toTensor(), given[2].toTensor());
  if (given[0].toTensor().is_contiguous() && !reads_itself) return false;
  const at::Tensor target = given[0].toTensor();
  call_plainly(scatter, given);
  given = {target, given.back(), false};
  call_plainly(copy, given);
  stack.resize(first);
  stack.emplace_back(target);
  return true;
}

}  // namespace triage::capture
