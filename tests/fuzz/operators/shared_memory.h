#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string>

namespace triage::fuzz {

/// What the memory of the results shows that graphs are not told of (graph::sharing): a result with the memory of an
/// argument or of another result, or a copy where a view is promised. Empty where there is nothing.
std::string untold_sharing(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
                           const torch::jit::Stack& results);

}  // namespace triage::fuzz
