#pragma once
#include <c10/core/Scalar.h>
#include <c10/util/FunctionRef.h>

#include <optional>

#include "runtime/backends/fused/loop_ir.h"

namespace triage::fused {

/// A number that loops compute of other numbers, without the loops. `input`: the number that Loops::inputs[i] is; `count`: of the
/// positions of an extent. Nothing where it is computed of data, or by what is not known here.
std::optional<c10::Scalar> number_of(const std::vector<LoopValue>& values, Ref number,
                                     c10::function_ref<c10::Scalar(size_t)> input,
                                     c10::function_ref<int64_t(size_t)> count);

}  // namespace triage::fused
