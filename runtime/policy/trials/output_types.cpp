#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/config.h>

#include <algorithm>
#include <map>
#include <set>

#include "runtime/flags/checks.h"
#include "runtime/graph/output_names.h"
#include "runtime/policy/trials/form.h"
#include "runtime/policy/trials/output_types.h"

namespace triage::policy {
namespace {

std::string kind_name(const OutputForm& form) { return form.is_flags ? "flags" : c10::toString(form.dtype); }

std::string shape_text(const OutputForm& form) { return fmt::format("[{}]", fmt::join(form.sizes, ", ")); }

bool same_sizes(const OutputForm& before, const OutputForm& after, const OpenSizes& open, size_t output) {
  if (before.sizes.size() != after.sizes.size()) return false;
  for (size_t dim = 0; dim < before.sizes.size(); ++dim)
    if (before.sizes[dim] != after.sizes[dim] && !open.count({output, dim})) return false;
  return true;
}

}  // namespace

Form form_of(at::ArrayRef<at::Tensor> outputs, const std::vector<bool>& is_flags) {
  Form form;
  for (size_t i = 0; i < outputs.size(); ++i)
    form.push_back({outputs[i].scalar_type(), outputs[i].device().type(), outputs[i].sizes().vec(),
                    i < is_flags.size() && is_flags[i]});
  return form;
}

Form form_of(const std::vector<capture::InputShape>& outputs, const std::vector<bool>& is_flags) {
  Form form;
  for (size_t i = 0; i < outputs.size(); ++i)
    form.push_back({outputs[i].dtype, outputs[i].device.type(), outputs[i].sizes, i < is_flags.size() && is_flags[i]});
  return form;
}

std::vector<bool> declared_alike(const Signature& before, const Signature& after) {
  const OutputDeclaration one = outputs_declared_by(before), other = outputs_declared_by(after);
  std::vector<bool> alike(std::min(one.size(), other.size()));
  for (size_t i = 0; i < alike.size(); ++i) alike[i] = one[i] && other[i] && *one[i] == *other[i];
  return alike;
}

std::string difference(const Form& before, const Form& after, const OpenSizes& open,
                       const std::vector<std::string>& names, const std::vector<bool>& declared) {
  if (before.size() != after.size())
    return fmt::format("the outputs from ({}) to ({})", fmt::join(graph::output_names(names, before.size()), ", "),
                       fmt::join(graph::output_names(names, after.size()), ", "));
  for (size_t i = 0; i < before.size(); ++i) {
    const OutputForm &old = before[i], &now = after[i];
    const std::string output = fmt::format("output '{}'", graph::output_name(names, i));
    const bool by_type = i < declared.size() && declared[i];
    if (old.is_flags != now.is_flags || (!by_type && old.dtype != now.dtype))
      return fmt::format("the type of {} from {} to {}", output, kind_name(old), kind_name(now));
    if (old.device != now.device)
      return fmt::format("the device of {} from {} to {}", output, c10::DeviceTypeName(old.device, true),
                         c10::DeviceTypeName(now.device, true));
    if (!by_type && !same_sizes(old, now, open, i))
      return fmt::format("the shape of {} from {} to {}", output, shape_text(old), shape_text(now));
  }
  return {};
}

void add_open_sizes(OpenSizes& open, const Form& one, const Form& other) {
  for (size_t i = 0; i < std::min(one.size(), other.size()); ++i)
    for (size_t dim = 0; dim < one[i].sizes.size() && one[i].sizes.size() == other[i].sizes.size(); ++dim)
      if (one[i].sizes[dim] != other[i].sizes[dim]) open.emplace(i, dim);
}

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

std::string failure_of(const Signature& signature, at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> outputs) {
  TensorMatcher matcher("policy");
  for (size_t i = 0; i < std::min(signature.input_types.size(), inputs.size()); ++i)  // binds the names of sizes
    if (const auto& type = signature.input_types[i])
      matcher.match(inputs[i], *type, {Subject::Role::input, signature.inputs[i]});
  for (size_t i = 0; i < signature.output_types.size(); ++i) {
    const auto& type = signature.output_types[i];
    if (!type) continue;
    if (i >= outputs.size() || !outputs[i].defined())
      return fmt::format("output '{}' is missing", graph::output_name(signature.outputs, i));
    const auto failure = matcher.match(outputs[i], *type, {Subject::Role::result, std::to_string(i + 1)});
    if (failure && (failure->kind != ValidationKind::validation || get_config().strict_validation))
      return fmt::format("output '{}' does not fit its declared type {}: {}", graph::output_name(signature.outputs, i),
                         type->text(), failure->message);
  }
  return {};
}

}  // namespace

OutputDeclaration outputs_declared_by(const Signature& signature) {
  OutputDeclaration types = signature.output_types;
  std::set<std::string> of_inputs;
  for (const auto& type : signature.input_types)
    if (type)
      for (const Dim& dim : type->dims)
        if (dim.kind == Dim::Kind::name) of_inputs.insert(dim.name);
  std::map<std::string, std::string> open;
  for (auto& type : types)
    if (type)
      for (Dim& dim : type->dims)
        if (dim.kind == Dim::Kind::name && !of_inputs.count(dim.name))
          dim.name = open.emplace(dim.name, std::to_string(open.size())).first->second;
  return types;
}

std::string outputs_text(const Signature& signature) {
  std::vector<std::string> all;
  for (size_t i = 0; i < signature.outputs.size(); ++i) {
    const bool typed = i < signature.output_types.size() && signature.output_types[i];
    all.push_back(signature.outputs[i] + (typed ? " = " + signature.output_types[i]->text() : ""));
  }
  return fmt::format("({})", fmt::join(all, ", "));
}

bool declares_outputs(const Signature& signature) {
  const auto& types = signature.output_types;
  return std::any_of(types.begin(), types.end(), [](const auto& type) { return type.has_value(); });
}

OutputTypes::OutputTypes(const Signature& signature) {
  if (!declares_outputs(signature)) return;
  std::map<std::string, SignatureDim> named;
  const auto note = [&](size_t tensor, bool of_output, const TensorSpec& spec, Type* type) {
    const auto rest =
        std::find_if(spec.dims.begin(), spec.dims.end(), [](const Dim& dim) { return dim.kind == Dim::Kind::rest; });
    const auto count = static_cast<int64_t>(spec.dims.size());
    const int64_t before = rest - spec.dims.begin();
    for (int64_t i = 0; i < count; ++i) {
      const Dim& dim = spec.dims[static_cast<size_t>(i)];
      const int64_t index = i < before ? i : i - count;  // behind "..." from the end
      if (dim.kind == Dim::Kind::name) {
        const auto [known, is_new] = named.emplace(dim.name, SignatureDim{tensor, of_output, index});
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
