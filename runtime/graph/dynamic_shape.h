#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

namespace triage::graph {

/// Whether the shape of what the call gives depends on values of its arguments (`nonzero`, indexing by a mask).
bool gives_dynamic_shape(const c10::OperatorHandle& op, at::ArrayRef<const c10::IValue> arguments);

}  // namespace triage::graph
