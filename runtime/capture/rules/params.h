#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace triage::capture {

class Recorder;

/// Front ends put a param where the schema wants a number: the call gets its value, the graph keeps the param. Says
/// whether there was any.
bool read_params(const c10::OperatorHandle& op, torch::jit::Stack& stack);

/// The same where `recorder`, for which the arguments were prepared, has stopped since: something between broke the
/// graph.
void read_params_unless_recorded(const Recorder* recorder, const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace triage::capture
