#include "runtime/operators/call.h"

namespace triage::operators {

Positions::Positions(const c10::FunctionSchema& schema) {
  positions_.fill(-1);
  const auto& declared = schema.arguments();
  for (size_t name = 0; name < positions_.size(); ++name)
    for (size_t i = 0; i < declared.size(); ++i)
      if (declared[i].name() == Name::all[name]) positions_[name] = static_cast<int8_t>(i);
}

const c10::IValue& Call::value(Name name) const {
  static const c10::IValue none;
  const int position = positions.of(name);
  return position < 0 ? none : arguments[static_cast<size_t>(position)];
}

const at::Tensor* Call::tensor(Name name) const {
  const c10::IValue& found = value(name);
  return found.isTensor() && found.toTensor().defined() ? &found.toTensor() : nullptr;
}

int64_t Call::integer(Name name, int64_t otherwise) const {
  const c10::IValue& found = value(name);
  return found.isNone() ? otherwise : integer_of(found);
}

double Call::number(Name name, double otherwise) const {
  const c10::IValue& found = value(name);
  return found.isNone() ? otherwise : number_of(found);
}

bool Call::boolean(Name name, bool otherwise) const {
  const c10::IValue& found = value(name);
  return found.isBool() ? found.toBool() : otherwise;
}

std::vector<int64_t> Call::integers(Name name) const {
  const c10::IValue& found = value(name);
  return found.isNone() ? std::vector<int64_t>() : integers_of(found);
}

std::vector<at::Tensor> Call::tensors(Name name) const {
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
