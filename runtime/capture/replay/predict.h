#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <vector>

#include "runtime/capture/replay/trace_tree.h"

/// What a step gives for sizes that it did not come with before, found out without computing it: the operator runs on
/// tensors without memory, or else the rules for sizes tell it (SizeRules).
namespace triage::capture {

/// The layouts of the results of `step` for these arguments. Nothing where they cannot be told without running it.
/// Tried first on the sizes of the first call, whose results are known.
std::optional<std::vector<ResultLayout>> predict(TraceStep& step, const std::vector<c10::IValue>& arguments);

/// Compares with what ATen gave for `arguments`; a step of which that differs is not predicted any more.
void check_prediction(TraceStep& step, const std::vector<c10::IValue>& arguments,
                      const std::vector<ResultLayout>& given);

}  // namespace triage::capture
