#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace triage::capture {

/// The smallest integer divided by -1 ends the process in ATen's kernels (SIGFPE, measured on 1.13 and 2.13), and
/// whether it comes to that depends on the data. Where `op` divides integers, and a divisor may be -1, this computes
/// the same with other operators (through `call`, so that they are recorded) and returns true: a negation for
/// quotients, 0 for remainders.
bool divide_integers(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace triage::capture
