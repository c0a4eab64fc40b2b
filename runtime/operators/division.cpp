#include "runtime/operators/division.h"

#include <ATen/ATen.h>
#include <ATen/native/TypeProperties.h>

namespace triage::operators {

at::ScalarType dtype_of_division(const c10::FunctionSchema& schema, const c10::IValue& self, const c10::IValue& other) {
  at::native::ResultTypeState state;
  const std::pair<size_t, const c10::IValue*> operands[] = {{0, &self}, {1, &other}};
  for (const auto& [argument, value] : operands) {
    if (!value->isTensor())
      state = at::native::update_result_type_state(value->toScalar(), state);
    else if (schema.arguments()[argument].type()->kind() == c10::TypeKind::TensorType)
      state = at::native::update_result_type_state(value->toTensor(), state);
    else
      state = at::native::update_result_type_state(value->toTensor().item(), state);
  }
  return at::native::result_type(state);
}

bool is_minus_one(int64_t number, at::ScalarType dtype) {
  switch (dtype) {
    case at::kChar:
      return static_cast<int8_t>(number) == -1;
    case at::kShort:
      return static_cast<int16_t>(number) == -1;
    case at::kInt:
      return static_cast<int32_t>(number) == -1;
    default:
      return dtype == at::kLong && number == -1;
  }
}

}  // namespace triage::operators
