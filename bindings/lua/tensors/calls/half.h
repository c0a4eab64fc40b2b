#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

namespace triage::lua {

/// capture::call, which every call of an operator from Lua goes through. Where this LibTorch has no kernel for float16
/// on the CPU (1.13 lacks most), float16 arguments are widened to float32 and the results rounded to float16 again:
/// each step is a call of its own, so that a graph holds what ran.
void call_at_any_width(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace triage::lua
