#pragma once
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

/// Whole numbers by -1: of the least one ATen's kernels raise a signal.
namespace triage::operators {

/// The dtype in which an operator divides its first two arguments, as promotion makes it. A number may stand as a
/// tensor where the schema wants a number.
at::ScalarType dtype_of_division(const c10::FunctionSchema& schema, const c10::IValue& self, const c10::IValue& other);

/// Whether `number` is -1 in a whole dtype, into which it is wrapped: 4294967295 is in int32.
bool is_minus_one(int64_t number, at::ScalarType dtype);

}  // namespace triage::operators
