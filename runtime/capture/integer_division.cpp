#include "runtime/capture/integer_division.h"

#include <ATen/core/Tensor.h>

#include <string>
#include <unordered_map>

#include "runtime/capture/recorder.h"
#include "runtime/capture/rules.h"

namespace triage::capture {
namespace {

enum class Gives : uint8_t { quotient, remainder };

/// By schema, which is one object an operator.
const std::unordered_map<const c10::FunctionSchema*, Gives>& divisions() {
  static const auto table = [] {
    std::unordered_map<const c10::FunctionSchema*, Gives> all;
    const auto add = [&](const char* name, std::initializer_list<const char*> overloads, Gives gives) {
      for (const char* overload : overloads)
        if (auto op = c10::Dispatcher::singleton().findSchema({std::string("aten::") + name, overload}))
          all.emplace(&op->schema(), gives);
    };
    for (const std::string tail : {"", "_"}) {
      add(("floor_divide" + tail).c_str(), {"", "Scalar", "Tensor"}, Gives::quotient);
      add(("div" + tail).c_str(), {"Tensor_mode", "Scalar_mode"}, Gives::quotient);
      add(("divide" + tail).c_str(), {"Tensor_mode", "Scalar_mode"}, Gives::quotient);
      add(("remainder" + tail).c_str(), {"Tensor", "Scalar", "Scalar_Tensor"}, Gives::remainder);
      add(("fmod" + tail).c_str(), {"Tensor", "Scalar"}, Gives::remainder);
    }
    return all;
  }();
  return table;
}

bool is_whole(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor().defined() && at::isIntegralType(value.toTensor().scalar_type(), true)
                          : value.isInt();
}

at::Tensor apply(const char* name, const char* overload, std::initializer_list<c10::IValue> arguments) {
  torch::jit::Stack stack(arguments);
  call(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload), stack);
  return stack.at(0).toTensor();
}

at::Tensor without_division(const at::Tensor& self, Gives gives) {
  if (gives == Gives::quotient) return apply("aten::neg", "", {self});
  return apply("aten::zeros_like", "",
               {self, c10::IValue(), c10::IValue(), c10::IValue(), c10::IValue(), c10::IValue()});
}

}  // namespace

bool divide_integers(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const auto found = divisions().find(&op.schema());
  if (found == divisions().end()) return false;
  const size_t first = stack.size() - op.schema().arguments().size();
  const c10::IValue self = stack[first], other = stack[first + 1];
  if (!is_whole(self) || !is_whole(other)) return false;
  if (other.isInt() && other.toInt() != -1) return false;
  if (base_name(op).back() == '_')
    throw Error("`" + base_name(op) +
                "` divides integers in place, which ends the process where the smallest one meets -1; use " +
                "the form that returns its result");
  if (!self.isTensor()) return false;  // a number by a tensor: LibTorch makes a tensor of it and comes here again
  if (other.isInt()) {
    const at::Tensor result = without_division(self.toTensor(), found->second);
    stack.resize(first);
    stack.emplace_back(result);
    return true;
  }
  const at::Tensor minus = apply("aten::eq", "Scalar", {other, -1});
  const at::Tensor divisor = apply("aten::masked_fill", "Scalar", {other, minus, 1});
  stack[first + 1] = divisor;
  call_plainly(op, stack);
  const at::Tensor divided = stack.back().toTensor();
  const at::Tensor plain = apply("aten::expand_as", "", {without_division(self.toTensor(), found->second), divided});
  const at::Tensor result = apply("aten::where", "self", {minus, plain, divided});
  stack.pop_back();
  stack.emplace_back(result);
  return true;
}

}  // namespace triage::capture
