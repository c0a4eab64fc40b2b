#include "bindings/lua/numbers/operand.h"

#include <ATen/ATen.h>

#include "bindings/lua/tensors/calls/call.h"
#include "bindings/lua/values/number.h"
#include "runtime/capture/recording/recorder.h"

namespace triage::lua {

void NumericOperand::make_double(lua_State* L) {
  if (tensor.defined())
    tensor = as_double(L, tensor);
  else
    number = number.toDouble();
  whole = false;
}

at::Tensor NumericOperand::as_tensor() const {
  if (tensor.defined()) return tensor;
  const at::Tensor constant = at::scalar_tensor(number, at::TensorOptions(whole ? at::kLong : at::kDouble));
  if (auto* recorder = capture::Recorder::current()) recorder->tensors().add_literal(constant);
  return constant;
}

bool is_operand(lua_State* L, int index) { return lua_type(L, index) == LUA_TNUMBER || test_number(L, index); }

NumericOperand read_operand(lua_State* L, int index) {
  NumericOperand operand;
  if (const at::Tensor* tensor = test_number(L, index)) {
    operand.tensor = *tensor;
    operand.whole = is_whole_number(*tensor);
  } else {
    operand.number = *test_scalar(L, index);
    operand.whole = lua_isinteger(L, index);
  }
  return operand;
}

at::Tensor as_double(lua_State* L, const at::Tensor& number) {
  if (number.scalar_type() == at::kDouble) return number;
  return run_for_tensor(L, "aten::to", "dtype", {number, at::kDouble, false, false, c10::IValue()});
}

at::Tensor record_math(lua_State* L, const char* function, const NumericOperand& a) {
  return run_for_tensor(L, "triage::math", "", {a.as_tensor(), function});
}

at::Tensor record_math(lua_State* L, const char* function, const NumericOperand& a, const NumericOperand& b) {
  if (b.symbolic()) return run_for_tensor(L, "triage::math", "Tensor", {a.as_tensor(), function, b.tensor});
  return run_for_tensor(L, "triage::math", "Scalar", {a.as_tensor(), function, b.number});
}

}  // namespace triage::lua
