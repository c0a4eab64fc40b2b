#include "runtime/capture/recording/held_params.h"

#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/replay/trace_replayer.h"
#include "runtime/capture/rules/arguments.h"

#include <algorithm>

namespace triage::capture {

bool hold_param(const at::Tensor& tensor) {
  if (!is_wrapped_number(tensor) || tensor.scalar_type() != at::kBool || tensor.dim() > 0) return false;
  if (Recorder* const recorder = Recorder::current()) return recorder->hold_param(tensor);
  const TraceReplayer* const replayer = TraceReplayer::current();
  return !replayer || replayer->is_param(tensor);
}

/// An export holds for all values of its params.
bool Recorder::hold_param(const at::Tensor& param) {
  if (!tensors_.is_param(param) || sizes_.numbers.keep_items) return false;
  const auto& inputs = graph_.inputs();
  const graph::Value* const value = tensors_.find(param);
  const auto input = std::find_if(inputs.begin(), inputs.end(), [&](const auto& each) { return each.value == value; });
  const auto number = static_cast<size_t>(input - inputs.begin());
  const bool known = std::any_of(held_params_.begin(), held_params_.end(),
                                 [&](const HeldParam& held) { return held.input == number; });
  if (!known) held_params_.push_back({number, param.item<bool>(), guard_line()});
  return true;
}

}  // namespace triage::capture
