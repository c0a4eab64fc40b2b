#include "runtime/capture/rules/params.h"

#include "runtime/capture/recording/recorder.h"
#include "runtime/graph/argument_type.h"

namespace triage::capture {
namespace {

/// A list of integers in which some are tensors, as plain integers. False where it is none.
bool read_integers(c10::IValue& value, const c10::Argument& argument) {
  if (!value.isList() || value.isIntList() || value.isDoubleList() || value.isBoolList() || value.isTensorList())
    return false;
  if (graph::type_of(argument).kind != graph::Kind::integer) return false;
  c10::List<int64_t> numbers;
  for (const c10::IValue& item : value.toListRef())
    numbers.push_back(item.isTensor() ? item.toTensor().item().toLong() : item.toInt());
  value = numbers;
  return true;
}

}  // namespace

bool read_params(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const auto& arguments = op.schema().arguments();
  size_t first = stack.size() - arguments.size();
  bool any = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    c10::IValue& value = stack[first + i];
    any |= read_integers(value, arguments[i]);
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    c10::TypePtr type = arguments[i].real_type();
    if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    if (type->kind() == c10::TypeKind::TensorType) continue;
    at::Scalar number = value.toTensor().item();
    switch (type->kind()) {
      case c10::TypeKind::NumberType:
        value = number;
        break;
      case c10::TypeKind::FloatType:
        value = number.toDouble();
        break;
      default:
        value = number.toLong();
    }
    any = true;
  }
  return any;
}

void read_params_unless_recorded(const Recorder* recorder, const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  if (recorder && recorder != Recorder::current()) read_params(op, stack);
}

}  // namespace triage::capture
