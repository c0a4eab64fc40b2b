#include "runtime/capture/tensors/safe_gradients.h"

#include <c10/core/GradMode.h>

#include "runtime/capture/recording/recorder.h"

namespace triage::capture {

void guard_replaced_elements(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  static const auto nan_to_num = c10::Dispatcher::singleton().findSchemaOrThrow("aten::nan_to_num", "");
  static const auto isfinite = c10::Dispatcher::singleton().findSchemaOrThrow("aten::isfinite", "");
  static const auto guard = c10::Dispatcher::singleton().findSchemaOrThrow("triage::guard_grad", "elements");
  if (&op.schema() != &nan_to_num.schema() || !c10::GradMode::is_enabled()) return;
  c10::IValue& self = stack[stack.size() - op.schema().arguments().size()];
  if (!self.isTensor() || !self.toTensor().defined()) return;
  const Recorder* recorder = Recorder::current();
  const at::Tensor tensor = self.toTensor();
  if (!tensor.requires_grad() && !(recorder && recorder->may_require_grad(tensor))) return;
  torch::jit::Stack arguments{tensor};
  call_plainly(isfinite, arguments);
  arguments = {tensor, tensor, arguments.back()};
  call_plainly(guard, arguments);
  self = arguments.back();
}

}  // namespace triage::capture
