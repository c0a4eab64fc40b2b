#include "runtime/policy/output_types.h"

#include "runtime/flags/checks.h"

#include <fmt/format.h>
#include <triage/config.h>

#include <algorithm>
#include <map>

namespace triage::policy {
namespace {

bool fits_dtype(const TensorSpec& spec, at::ScalarType dtype) noexcept {
  if (spec.flags) return dtype == at::kLong || dtype == at::kInt || dtype == at::kDouble || dtype == at::kFloat;
  switch (spec.kind) {
    case DTypeKind::exact:
      return dtype == spec.dtype;
    case DTypeKind::floating:
      return at::isFloatingType(dtype);
    case DTypeKind::integer:
      return at::isIntegralType(dtype, /*includeBool=*/false);
    case DTypeKind::any:
      break;
  }
  return true;
}

std::string name_of(const Signature& signature, size_t output) {
  return output < signature.outputs.size() ? signature.outputs[output] : fmt::format("out{}", output);
}

std::string failure_of(const Signature& signature, at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> outputs) {
  TensorMatcher matcher("policy");
  for (size_t i = 0; i < std::min(signature.input_types.size(), inputs.size()); ++i)  // binds the names of sizes
    if (const auto& type = signature.input_types[i])
      matcher.match(inputs[i], *type, {Subject::Role::input, signature.inputs[i]});
  for (size_t i = 0; i < signature.output_types.size(); ++i) {
    const auto& type = signature.output_types[i];
    if (!type) continue;
    if (i >= outputs.size() || !outputs[i].defined())
      return fmt::format("output '{}' is missing", name_of(signature, i));
    const auto failure = matcher.match(outputs[i], *type, {Subject::Role::result, std::to_string(i + 1)});
    if (failure && (failure->kind != ValidationKind::validation || get_config().strict_validation))
      return fmt::format("output '{}' does not fit its declared type {}: {}", name_of(signature, i), type->text(),
                         failure->message);
  }
  return {};
}

}  // namespace

bool declares_outputs(const Signature& signature) {
  const auto& types = signature.output_types;
  return std::any_of(types.begin(), types.end(), [](const auto& type) { return type.has_value(); });
}

OutputTypes::OutputTypes(const Signature& signature) {
  if (!declares_outputs(signature)) return;
  std::map<std::string, Place> named;
  const auto note = [&](size_t tensor, bool of_output, const TensorSpec& spec, Type* type) {
    const auto rest =
        std::find_if(spec.dims.begin(), spec.dims.end(), [](const Dim& dim) { return dim.kind == Dim::Kind::rest; });
    const auto count = static_cast<int64_t>(spec.dims.size());
    const int64_t before = rest - spec.dims.begin();
    for (int64_t i = 0; i < count; ++i) {
      const Dim& dim = spec.dims[static_cast<size_t>(i)];
      const int64_t index = i < before ? i : i - count;  // behind "..." from the end
      if (dim.kind == Dim::Kind::name) {
        const auto [known, is_new] = named.emplace(dim.name, Place{tensor, of_output, index});
        if (type && !is_new) type->same.push_back({index, known->second});
      } else if (type && dim.kind == Dim::Kind::size) {
        type->fixed.push_back({index, dim.value});
      }
    }
    if (!type) return;
    type->open = rest != spec.dims.end();
    type->rank = type->open ? count - 1 : count;
  };
  for (size_t i = 0; i < signature.input_types.size(); ++i)
    if (const auto& spec = signature.input_types[i]) note(i, false, *spec, nullptr);
  for (size_t i = 0; i < signature.output_types.size(); ++i)
    if (const auto& spec = signature.output_types[i]) {
      types_.push_back({i, *spec, 0, false, {}, {}});
      note(i, true, *spec, &types_.back());
    }
}

bool OutputTypes::fit(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> outputs) const noexcept {
  for (const Type& type : types_) {
    if (type.output >= outputs.size() || !outputs[type.output].defined()) return false;
    const at::Tensor& output = outputs[type.output];
    const TensorSpec& spec = type.spec;
    if (spec.device || spec.requires_grad) return false;  // looked at by the matcher
    if (spec.flags &&
        (output.dim() != 2 || output.size(1) != flags::check::words_for(get_config().num_slots, output.scalar_type())))
      return false;
    if (!fits_dtype(spec, output.scalar_type())) return false;
    const int64_t rank = output.dim();
    if (type.open ? rank < type.rank : rank != type.rank) return false;
    const auto sizes = output.sizes();
    const auto at = [](at::IntArrayRef of, int64_t index) {
      return of[static_cast<size_t>(index < 0 ? index + static_cast<int64_t>(of.size()) : index)];
    };
    for (const auto& [index, size] : type.fixed)
      if (at(sizes, index) != size) return false;
    for (const auto& [index, place] : type.same) {
      const auto& tensors = place.of_output ? outputs : inputs;
      if (place.tensor >= tensors.size() || at(sizes, index) != at(tensors[place.tensor].sizes(), place.dim))
        return false;
    }
  }
  return true;
}

std::optional<std::string> output_failure(const Signature& signature, at::ArrayRef<at::Tensor> inputs,
                                          at::ArrayRef<at::Tensor> outputs) {
  if (!declares_outputs(signature)) return std::nullopt;
  std::string failure = failure_of(signature, inputs, outputs);
  if (failure.empty()) return std::nullopt;
  return failure;
}

}  // namespace triage::policy
