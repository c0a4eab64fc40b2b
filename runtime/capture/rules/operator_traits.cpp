#include "runtime/capture/rules/operator_traits.h"

#include <triage/graph.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "runtime/capture/rules/rules.h"

namespace triage::capture {
namespace {

bool gives_only_tensors(const c10::FunctionSchema& schema) {
  for (const auto& result : schema.returns()) {
    auto kind = result.type()->kind();
    if (kind == c10::TypeKind::TensorType) continue;
    if (kind == c10::TypeKind::ListType &&
        result.type()->expectRef<c10::ListType>().getElementType()->kind() == c10::TypeKind::TensorType)
      continue;
    return false;
  }
  return true;
}

bool has_out_argument(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  return std::any_of(arguments.begin(), arguments.end(), [](const auto& argument) { return argument.is_out(); });
}

/// Sizes decide how many tensors come out, so a replay at another size would come out with another number of them.
bool gives_list(const c10::FunctionSchema& schema) {
  for (const auto& result : schema.returns())
    if (result.type()->kind() == c10::TypeKind::ListType && schema.returns().size() > 1) return true;
  return false;
}

bool gives_plain_tensors(const c10::FunctionSchema& schema) {
  const auto& returns = schema.returns();
  return !returns.empty() && std::all_of(returns.begin(), returns.end(), [](const auto& result) {
    return result.type()->kind() == c10::TypeKind::TensorType;
  });
}

OperatorTraits::Refused refused(const c10::FunctionSchema& schema) {
  using Refused = OperatorTraits::Refused;
  if (has_out_argument(schema)) return Refused::writes_to_out;
  if (!gives_only_tensors(schema)) return Refused::reads_value;
  return gives_list(schema) ? Refused::mixes_lists : Refused::no;
}

OperatorTraits by_schema(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  OperatorTraits traits;
  traits.refused = refused(schema);
  traits.computes = !graph::writes(op) && !graph::is_random(op) && !graph::is_effect(op) && gives_plain_tensors(schema);
  for (const auto& result : schema.returns()) traits.aliases |= result.alias_info() != nullptr;
  traits.writes_noise = base_name(op) == "rrelu_with_noise";
  if (base_name(op).find("_norm") == std::string::npos) return traits;
  for (size_t i = 0; i < schema.arguments().size(); ++i)
    for (const std::string_view name : {"training", "train", "use_input_stats"})
      if (schema.arguments()[i].name() == name) traits.training.push_back(i);
  return traits;
}

}  // namespace

const OperatorTraits& traits_of(const c10::OperatorHandle& op) {
  // Of the thread: a replay asks for each call that it makes, and takes no lock.
  thread_local std::unordered_map<const c10::FunctionSchema*, OperatorTraits> known;
  const auto found = known.find(&op.schema());
  return found != known.end() ? found->second : known.emplace(&op.schema(), by_schema(op)).first->second;
}

}  // namespace triage::capture
