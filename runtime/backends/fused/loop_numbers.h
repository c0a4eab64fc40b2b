#pragma once
#include <c10/core/Scalar.h>
#include <c10/util/FunctionRef.h>

#include <vector>

#include "runtime/backends/fused/loop_ir.h"

namespace triage::fused {

/// Whether the host can compute the number `value` of its operands, without the loops: LoopValue::on_host.
bool can_be_on_host(const std::vector<LoopValue>& values, const LoopValue& value);

/// Finds the numbers up to Loops::last_asked that have LoopValue::on_host, each once however many read it, and puts
/// them in their places of `known`. `input`: the number that Loops::inputs[i] is, of these operands where it is
/// computed; `count`: of the positions of an extent.
using InputNumber = c10::function_ref<c10::Scalar(size_t, at::ArrayRef<c10::Scalar>)>;
void find_numbers(const Loops& loops, InputNumber input, c10::function_ref<int64_t(size_t)> count,
                  std::vector<c10::Scalar>& known);

/// The last of the values that the host must know: those that bounds and sizes are compared with, and inputs that it
/// computes.
Ref last_asked(const Loops& loops);

}  // namespace triage::fused
