#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string>
#include <vector>

namespace triage::capture {

/// What autocast made of a call: the arguments that the operator worked on, cast where it casts them. A graph that
/// casts them itself computes the same without autocast.
struct CastCall {
  std::vector<c10::IValue> arguments;
  std::string refusal;  // why no such arguments are known; empty where they are
};

/// Autocast, as it is on now, has a rule of its own for `op` on these arguments.
bool has_autocast(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments);

/// Runs `op` on `stack` as OperatorHandle::callBoxed does, in the autocast mode of this thread.
CastCall call_under_autocast(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace triage::capture
