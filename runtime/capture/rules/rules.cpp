#include "runtime/capture/rules/rules.h"

#include <ATen/core/Tensor.h>
#include <triage/graph.h>

#include <algorithm>

#include "runtime/capture/rules/operator_traits.h"
#include "runtime/graph/dynamic_shape.h"
#include "runtime/operators/semantics.h"

namespace triage::capture {

using operators::Semantics, operators::semantics_of;

bool is_aten(const c10::OperatorHandle& op) { return op.operator_name().name.rfind("aten::", 0) == 0; }

std::string base_name(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  auto colon = name.rfind(':');
  return colon == std::string::npos ? name : name.substr(colon + 1);
}

bool gives_dynamic_shape(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) {
  return graph::gives_dynamic_shape(op, at::ArrayRef<const c10::IValue>(arguments.data(), arguments.size()));
}

bool judges_values(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) {
  const Semantics& does = semantics_of(op);
  if (does.has(Semantics::judges_values)) return true;
  if (!does.has(Semantics::judges_whole)) return false;
  return std::all_of(arguments.begin(), arguments.end(), [](const c10::IValue& argument) {
    return !argument.isTensor() || !argument.toTensor().defined() ||
           at::isIntegralType(argument.toTensor().scalar_type(), /*includeBool=*/true);
  });
}

bool selects_for_batch(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) {
  return op.operator_name().name == "triage::select" && arguments[0].toTensor().dim() == 0;
}

std::optional<Refusal> refusal(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                               bool dynamic_shapes) {
  if (!dynamic_shapes && gives_dynamic_shape(op, arguments))
    return Refusal{Break::dynamic_shape, "`" + base_name(op) + "` gives a result whose shape depends on values",
                   "Keep all rows and select with torch.where, err.take_ok_p or err.map_ok; or set "
                   "triage.config.capture_dynamic_output_shape_ops."};
  for (const c10::IValue& argument : arguments)
    if (argument.isGenerator())
      return Refusal{Break::unsupported, "`" + base_name(op) + "` draws from its own generator",
                     "Draw from the default generator, which torch.manual_seed sets."};
  switch (traits_of(op).refused) {
    case OperatorTraits::Refused::writes_to_out:
      return Refusal{Break::unsupported, "`" + base_name(op) + "` writes its result into `out`",
                     "Use the form without `out`: it returns the result."};
    case OperatorTraits::Refused::reads_value:
      return Refusal{
          Break::reads_value, "`" + base_name(op) + "` reads a value of a tensor",
          "Keep it a tensor: compare and select with torch.where or IF, or read it after the compiled code."};
    case OperatorTraits::Refused::mixes_lists:
      return Refusal{Break::unsupported, "`" + base_name(op) + "` returns a list as one of several results",
                     "Call the operators that it consists of."};
    default:
      return std::nullopt;
  }
}

}  // namespace triage::capture
