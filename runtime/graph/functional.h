#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>

namespace triage::graph {

/// The functional twin of an in-place operator (`aten::add_.Tensor` -> `aten::add.Tensor`), where its arguments are the
/// same.
std::optional<c10::OperatorHandle> functional_twin(const c10::OperatorHandle& op);

}  // namespace triage::graph
