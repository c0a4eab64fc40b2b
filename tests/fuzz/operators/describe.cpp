#include "tests/fuzz/operators/arguments.h"

#include <ATen/ATen.h>

#include <sstream>

namespace triage::fuzz {
namespace {

constexpr int64_t max_shown = 24;

std::string list_text(at::IntArrayRef integers) {
  std::string text;
  for (const int64_t integer : integers) text += (text.empty() ? "" : ", ") + std::to_string(integer);
  return "{" + text + "}";
}

std::string element_text(const at::Tensor& element) {
  std::ostringstream text;
  text.precision(17);
  const at::Scalar value = element.item();
  if (value.isComplex())
    text << value.toComplexDouble();
  else if (value.isFloatingPoint())
    text << value.toDouble();
  else
    text << value.toLong();
  return text.str();
}

std::string tensor_text(const at::Tensor& tensor) {
  if (!tensor.defined()) return "nil";
  std::string text = std::string(c10::toString(tensor.scalar_type())) + " " + list_text(tensor.sizes());
  if (tensor.layout() != at::kStrided || !tensor.device().is_cpu()) return text + " (not a CPU tensor with strides)";
  if (!tensor.is_contiguous()) text += " strides " + list_text(tensor.strides());
  if (tensor.storage_offset() != 0) text += " offset " + std::to_string(tensor.storage_offset());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) text += " (a number)";
  if (tensor.is_conj()) text += " (conj)";
  if (tensor.requires_grad()) text += " (requires grad)";
  at::Tensor first = tensor.detach();
  for (int64_t dim = 0; tensor.numel() > 1 << 16 && dim < first.dim(); ++dim)
    first = first.narrow(dim, 0, std::min<int64_t>(1, first.size(dim)));
  const at::Tensor flat = first.resolve_conj().resolve_neg().reshape(-1);
  text += " [";
  for (int64_t i = 0; i < std::min(max_shown, flat.numel()); ++i) text += (i ? " " : "") + element_text(flat[i]);
  return text + (flat.numel() > max_shown ? " ...]" : "]");
}

/// The argument before `position` whose memory this one shares, -1 for none.
int sharer(const torch::jit::Stack& arguments, size_t position) {
  if (!arguments[position].isTensor() || !arguments[position].toTensor().defined()) return -1;
  for (size_t i = 0; i < position; ++i)
    if (arguments[i].isTensor() && arguments[i].toTensor().defined() && arguments[i].toTensor().has_storage() &&
        arguments[position].toTensor().has_storage() &&
        arguments[i].toTensor().storage().unsafeGetStorageImpl() ==
            arguments[position].toTensor().storage().unsafeGetStorageImpl())
      return static_cast<int>(i);
  return -1;
}

std::string value_text(const c10::IValue& value) {
  if (value.isTensor()) return tensor_text(value.toTensor());
  if (value.isNone()) return "nil";
  if (value.isString()) return '"' + value.toStringRef() + '"';
  if (value.isBool()) return value.toBool() ? "true" : "false";
  if (value.isDouble()) {
    std::ostringstream text;
    text.precision(17);
    text << value.toDouble();
    return text.str();
  }
  if (value.isList()) {
    std::string text;
    for (const c10::IValue& item : value.toListRef()) text += (text.empty() ? "" : ", ") + value_text(item);
    return "{" + text + "}";
  }
  std::ostringstream text;
  text << value;
  return text.str();
}

}  // namespace

std::string describe_arguments(const c10::FunctionSchema& schema, const torch::jit::Stack& arguments) {
  std::string text;
  for (size_t i = 0; i < arguments.size(); ++i) {
    text += (i ? ", " : "") + schema.arguments()[i].name() + "=" + value_text(arguments[i]);
    const int other = sharer(arguments, i);
    if (other >= 0) text += " (memory of " + schema.arguments()[static_cast<size_t>(other)].name() + ")";
  }
  return text;
}

}  // namespace triage::fuzz
