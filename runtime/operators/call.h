#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <string_view>
#include <vector>

namespace triage::operators {

/// One call, as bounds and relations of the table look at it. Arguments are found by name; what is not there, or None, gives
/// the value that stands for it.
struct Call {
  const c10::FunctionSchema& schema;
  c10::ArrayRef<c10::IValue> arguments;

  const c10::IValue& value(std::string_view name) const;
  const at::Tensor* tensor(std::string_view name) const;  // null: none
  int64_t integer(std::string_view name, int64_t otherwise) const;
  double number(std::string_view name, double otherwise) const;
  bool boolean(std::string_view name, bool otherwise) const;
  std::vector<int64_t> integers(std::string_view name) const;
  std::vector<at::Tensor> tensors(std::string_view name) const;
};

/// A number that may stand as a tensor of one element.
int64_t integer_of(const c10::IValue& value);
double number_of(const c10::IValue& value);
std::vector<int64_t> integers_of(const c10::IValue& value);

/// Calls `visit` with every tensor of the arguments that is defined.
template <typename Visit>
void for_each_tensor(c10::ArrayRef<c10::IValue> arguments, const Visit& visit) {
  for (const c10::IValue& value : arguments) {
    if (value.isTensor()) {
      if (value.toTensor().defined()) visit(value.toTensor());
    } else if (value.isList()) {
      for (const c10::IValue& item : value.toListRef())
        if (item.isTensor() && item.toTensor().defined()) visit(item.toTensor());
    }
  }
}

}  // namespace triage::operators
