#include "runtime/policy/form.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace triage::policy {
namespace {

std::string name_of(const std::vector<std::string>& names, size_t output) {
  return output < names.size() ? names[output] : fmt::format("out{}", output);
}

std::string all_names(const std::vector<std::string>& names, size_t count) {
  std::vector<std::string> all;
  for (size_t i = 0; i < count; ++i) all.push_back(name_of(names, i));
  return fmt::format("({})", fmt::join(all, ", "));
}

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

OpenSizes declared_open_sizes(const Signature& signature) {
  std::set<std::string> bound;
  for (const auto& type : signature.input_types)
    if (type)
      for (const Dim& dim : type->dims)
        if (dim.kind == Dim::Kind::name) bound.insert(dim.name);
  OpenSizes open;
  for (size_t i = 0; i < signature.output_types.size(); ++i) {
    if (!signature.output_types[i]) continue;
    const auto& dims = signature.output_types[i]->dims;
    for (size_t dim = 0; dim < dims.size() && dims[dim].kind != Dim::Kind::rest; ++dim)
      if (dims[dim].kind == Dim::Kind::broadcast || (dims[dim].kind == Dim::Kind::name && !bound.count(dims[dim].name)))
        open.emplace(i, dim);
  }
  return open;
}

std::string difference(const Form& before, const Form& after, const OpenSizes& open,
                       const std::vector<std::string>& names) {
  if (before.size() != after.size())
    return fmt::format("the outputs from {} to {}", all_names(names, before.size()), all_names(names, after.size()));
  for (size_t i = 0; i < before.size(); ++i) {
    const OutputForm &old = before[i], &now = after[i];
    const std::string output = fmt::format("output '{}'", name_of(names, i));
    if (old.is_flags != now.is_flags || old.dtype != now.dtype)
      return fmt::format("the type of {} from {} to {}", output, kind_name(old), kind_name(now));
    if (old.device != now.device)
      return fmt::format("the device of {} from {} to {}", output, c10::DeviceTypeName(old.device, true),
                         c10::DeviceTypeName(now.device, true));
    if (!same_sizes(old, now, open, i))
      return fmt::format("the shape of {} from {} to {}", output, shape_text(old), shape_text(now));
  }
  return {};
}

void add_open_sizes(OpenSizes& open, const Form& one, const Form& other) {
  for (size_t i = 0; i < std::min(one.size(), other.size()); ++i)
    for (size_t dim = 0; dim < one[i].sizes.size() && one[i].sizes.size() == other[i].sizes.size(); ++dim)
      if (one[i].sizes[dim] != other[i].sizes[dim]) open.emplace(i, dim);
}

}  // namespace triage::policy
