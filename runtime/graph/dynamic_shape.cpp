#include "runtime/graph/dynamic_shape.h"

#include <ATen/core/Tensor.h>

#include <string_view>
#include <unordered_set>

namespace triage::graph {
namespace {

bool indexes_by_mask(const c10::IValue& indices) {
  if (!indices.isList()) return false;
  for (const c10::IValue& index : indices.toListRef())
    if (index.isTensor() && index.toTensor().defined() &&
        (index.toTensor().scalar_type() == at::kBool || index.toTensor().scalar_type() == at::kByte))
      return true;
  return false;
}

}  // namespace

bool gives_dynamic_shape(const c10::OperatorHandle& op, at::ArrayRef<const c10::IValue> arguments) {
  static const std::unordered_set<std::string_view> always = {
      "nonzero",      "nonzero_numpy", "argwhere",           "masked_select", "bincount",
      "_unique",      "_unique2",      "unique_consecutive", "unique_dim",    "unique_dim_consecutive",
      "linalg_lstsq", "histogram",     "histogramdd",        "histc_auto",    "combinations"};
  std::string_view name = op.operator_name().name;
  name.remove_prefix(name.rfind(':') + 1);  // its namespace
  if (always.count(name)) return true;
  if (name == "index") return arguments.size() > 1 && indexes_by_mask(arguments[1]);
  if (name == "where") return arguments.size() == 1;
  if (name == "one_hot") return arguments.size() < 2 || !arguments[1].isInt() || arguments[1].toInt() < 0;
  if (name == "repeat_interleave") {  // the length is the sum of the repeats, a tensor
    for (const auto& argument : op.schema().arguments())
      if (argument.name() == "repeats") return argument.type()->kind() == c10::TypeKind::TensorType;
  }
  return false;
}

}  // namespace triage::graph
