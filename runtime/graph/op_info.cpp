#include <ATen/core/Tensor.h>
#include <ATen/core/enum_tag.h>
#include <triage/graph.h>

#include <string_view>
#include <unordered_set>

#include "runtime/graph/dynamic_shape.h"
#include "runtime/graph/functional.h"

namespace triage::graph {
namespace {

bool writes_through(const c10::AliasInfo& info) {
  if (info.isWrite()) return true;
  for (const auto& inner : info.containedTypes())  // Tensor(a!)[]
    if (writes_through(inner)) return true;
  return false;
}

bool starts_with(const std::string& text, std::string_view prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

// Operators that draw though neither a Generator argument nor a tag of every LibTorch version says so. Those that draw
// only with some arguments (dropout at training time) count as random: at worst they are kept when nobody uses them.
const std::unordered_set<std::string>& random_without_generator() {
  static const std::unordered_set<std::string> names = {"aten::dropout",
                                                        "aten::native_dropout",
                                                        "aten::feature_dropout",
                                                        "aten::alpha_dropout",
                                                        "aten::feature_alpha_dropout",
                                                        "aten::rrelu",
                                                        "aten::rand",
                                                        "aten::rand_like",
                                                        "aten::randn",
                                                        "aten::randn_like",
                                                        "aten::randint",
                                                        "aten::randint_like",
                                                        "aten::randperm",
                                                        "aten::lstm",
                                                        "aten::gru",
                                                        "aten::rnn_tanh",
                                                        "aten::rnn_relu",
                                                        "aten::_cudnn_rnn",
                                                        "aten::miopen_rnn",
                                                        "aten::scaled_dot_product_attention",
                                                        "aten::_scaled_dot_product_attention",
                                                        "aten::_scaled_dot_product_flash_attention",
                                                        "aten::_scaled_dot_product_efficient_attention",
                                                        "aten::_efficient_attention_forward",
                                                        "aten::_flash_attention_forward"};
  return names;
}

const std::unordered_set<std::string>& first_result_is_flags() {
  static const std::unordered_set<std::string> names = {"triage::new",
                                                        "triage::push",
                                                        "triage::merge",
                                                        "triage::clear",
                                                        "triage::flag_nan",
                                                        "triage::flag_inf",
                                                        "triage::flag_nan_and_inf",
                                                        "triage::flag_oob_indices"};
  return names;
}

}  // namespace

bool is_random(const c10::OperatorHandle& op) {
  for (const auto& argument : op.schema().arguments()) {
    c10::TypePtr type = argument.real_type();
    if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    if (type->kind() == c10::TypeKind::GeneratorType) return true;
  }
  return op.hasTag(at::Tag::nondeterministic_seeded) || random_without_generator().count(op.operator_name().name) != 0;
}

bool writes(const c10::OperatorHandle& op) {
  for (const auto& argument : op.schema().arguments())
    if (argument.alias_info() && writes_through(*argument.alias_info())) return true;
  return false;
}

bool returns_flags(const c10::OperatorHandle& op, size_t result) {
  const std::string& name = op.operator_name().name;
  if (!starts_with(name, "triage::")) return false;
  if (name == "triage::fix") return result == 1;
  return result == 0 && first_result_is_flags().count(name) != 0;
}

bool is_effect(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  return op.schema().returns().empty() || starts_with(name, "aten::_assert") ||
         starts_with(name, "aten::_functional_assert") || starts_with(name, "aten::_print") ||
         starts_with(name, "aten::sym_constrain_range") || starts_with(name, "aten::_functional_sym_constrain_range");
}

std::optional<c10::OperatorHandle> functional_twin(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name();
  if (name.name.size() < 2 || name.name.back() != '_') return std::nullopt;
  auto twin = c10::Dispatcher::singleton().findSchema({name.name.substr(0, name.name.size() - 1), name.overload_name});
  if (!twin) return std::nullopt;
  const auto& wanted = op.schema().arguments();
  const auto& given = twin->schema().arguments();
  if (wanted.size() != given.size() || twin->schema().returns().size() != 1 || writes(*twin)) return std::nullopt;
  for (size_t i = 0; i < wanted.size(); ++i)
    if (wanted[i].name() != given[i].name() || *wanted[i].type() != *given[i].type()) return std::nullopt;
  return *twin;
}

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
