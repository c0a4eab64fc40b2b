#include "runtime/operators/call.h"

namespace triage::operators {

const c10::IValue& Call::value(std::string_view name) const {
  static const c10::IValue none;
  const auto& declared = schema.arguments();
  for (size_t i = 0; i < declared.size(); ++i)
    if (declared[i].name() == name) return arguments[i];
  return none;
}

const at::Tensor* Call::tensor(std::string_view name) const {
  const c10::IValue& found = value(name);
  return found.isTensor() && found.toTensor().defined() ? &found.toTensor() : nullptr;
}

int64_t Call::integer(std::string_view name, int64_t otherwise) const {
  const c10::IValue& found = value(name);
  return found.isNone() ? otherwise : integer_of(found);
}

double Call::number(std::string_view name, double otherwise) const {
  const c10::IValue& found = value(name);
  return found.isNone() ? otherwise : number_of(found);
}

bool Call::boolean(std::string_view name, bool otherwise) const {
  const c10::IValue& found = value(name);
  return found.isBool() ? found.toBool() : otherwise;
}

std::vector<int64_t> Call::integers(std::string_view name) const {
  const c10::IValue& found = value(name);
  return found.isNone() ? std::vector<int64_t>() : integers_of(found);
}

std::vector<at::Tensor> Call::tensors(std::string_view name) const {
  std::vector<at::Tensor> all;
  const c10::IValue& found = value(name);
  for_each_tensor(c10::ArrayRef<c10::IValue>(&found, 1), [&](const at::Tensor& tensor) { all.push_back(tensor); });
  return all;
}

int64_t integer_of(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor().item().toLong();
  return value.isBool() ? value.toBool() : value.isDouble() ? static_cast<int64_t>(value.toDouble()) : value.toInt();
}

double number_of(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor().item().toDouble();
  return value.isBool() ? value.toBool() : value.isInt() ? static_cast<double>(value.toInt()) : value.toDouble();
}

std::vector<int64_t> integers_of(const c10::IValue& value) {
  if (value.isIntList()) return value.toIntVector();
  std::vector<int64_t> all;
  if (!value.isList()) return {integer_of(value)};
  for (const c10::IValue& item : value.toListRef()) all.push_back(integer_of(item));
  return all;
}

}  // namespace triage::operators
