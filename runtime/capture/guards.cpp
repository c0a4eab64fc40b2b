#include "runtime/capture/compiled.h"

#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <triage/compiler_config.h>
#include <triage/config.h>

#include <algorithm>
#include <sstream>

#include "runtime/compat/autocast.h"
#include "runtime/compat/readable_memory.h"
#include "runtime/graph/memory.h"
#include "runtime/graph/text/describe.h"
#include "runtime/location/resets.h"
#include "runtime/random/sequence.h"

namespace triage::capture {
namespace {

std::string name_of(caffe2::TypeMeta dtype) { return graph::dtype_name(dtype.toScalarType()); }
std::string name_of(size_t input, const std::vector<std::string>& names) {
  return input < names.size() ? names[input] : "#" + std::to_string(input);
}

/// " (read at f.lua:3)": what of the script made a guard; empty where that is not known.
std::string made_by(const std::vector<Source>& lines, size_t guard, const char* does) {
  if (guard >= lines.size() || lines[guard].file.empty()) return "";
  return " (" + std::string(does) + " at " + lines[guard].file + ":" + std::to_string(lines[guard].line) + ")";
}

std::string read_at(const std::vector<KindLines>& lines, size_t input, Source KindLines::*read) {
  if (input >= lines.size() || (lines[input].*read).file.empty()) return "";
  const Source& line = lines[input].*read;
  return " (read at " + line.file + ":" + std::to_string(line.line) + ")";
}

/// Of a param that fits its guard as an input.
bool is_held(const HeldParam& held, at::ArrayRef<at::Tensor> tensors) noexcept {
  const auto* const value = static_cast<const bool*>(compat::readable_memory(tensors[held.input]));
  return value && *value == held.truth;
}

/// "read by the script at f.lua:3".
std::string why(const std::vector<Source>& lines, size_t guard, const std::string& why) {
  if (guard >= lines.size() || lines[guard].file.empty()) return why;
  return why + " at " + lines[guard].file + ":" + std::to_string(lines[guard].line);
}

}  // namespace

Guards::InputGuard Guards::InputGuard::of(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  return {impl->key_set().raw_repr(), tensor.dtype(),           tensor.device().index(), tensor.dim(),
          tensor.requires_grad(),     impl->is_wrapped_number()};
}

bool Guards::InputGuard::fits(const at::Tensor& tensor) const noexcept {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  return impl->key_set().raw_repr() == keys && impl->dtype() == dtype && impl->dim() == rank &&
         tensor.device().index() == device_index && tensor.requires_grad() == requires_grad &&
         impl->is_wrapped_number() == wrapped && !compat::lacks_memory(tensor);
}

bool Guards::GuardedVariable::holds(at::ArrayRef<at::Tensor> script_variables) const noexcept {
  if (!tensor.defined() && number >= script_variables.size()) return false;
  const at::Tensor& now = tensor.defined() ? tensor : script_variables[number];
  return kind.fits(now) && !now.key_set().has(c10::DispatchKey::NestedTensor) && now.sizes() == sizes;
}

Guards Guards::of(at::ArrayRef<at::Tensor> inputs, size_t num_params) {
  Guards guards;
  for (const auto& input : inputs) guards.inputs.push_back(Guards::InputGuard::of(input));
  for (size_t i = 0; i + num_params < inputs.size(); ++i) guards.same_as.push_back(number_among(inputs, inputs[i]));
  auto thread_state = c10::impl::tls_local_dispatch_key_set();
  guards.included_keys = (thread_state.included_ - random::scope_keys).raw_repr();
  guards.excluded_keys = thread_state.excluded_.raw_repr();
  guards.grad_mode = c10::GradMode::is_enabled();
  guards.default_dtype = c10::get_default_dtype();
  guards.autocast = compat::autocast_state();
  guards.config = &get_config();
  guards.location_resets = triage::location_resets();
  guards.dynamic_output_shapes = get_compiler_config().capture_dynamic_output_shape_ops;
  return guards;
}

void Guards::add_variables(const graph::Graph& graph, at::ArrayRef<at::Tensor> script_variables) {
  for (const graph::Constant& constant : graph.constants()) {
    if (!constant.variable) continue;
    const at::Tensor& tensor = constant.tensor;
    const size_t number = number_among(script_variables, tensor);
    variables.push_back({number < script_variables.size() ? at::Tensor() : tensor, number,
                         Guards::InputGuard::of(tensor), tensor.sizes().vec()});
  }
}

void Guards::add_host_tensor(const at::Tensor& tensor) {
  const auto is_same = [&](const GuardedVariable& known) { return known.tensor.is_same(tensor); };
  const bool has_sizes = tensor.defined() && !tensor.key_set().has(c10::DispatchKey::NestedTensor);
  if (!has_sizes || std::any_of(variables.begin(), variables.end(), is_same)) return;
  variables.push_back({tensor, 0, Guards::InputGuard::of(tensor), tensor.sizes().vec()});
}

bool Guards::hold(at::ArrayRef<at::Tensor> tensors, at::ArrayRef<at::Tensor> script_variables) const noexcept {
  if (tensors.size() != inputs.size() || config != &get_config() || location_resets != triage::location_resets() ||
      dynamic_output_shapes != get_compiler_config().capture_dynamic_output_shape_ops)
    return false;
  auto thread_state = c10::impl::tls_local_dispatch_key_set();
  const uint64_t included = (thread_state.included_ - random::scope_keys).raw_repr();
  if (included_keys != included || excluded_keys != thread_state.excluded_.raw_repr() ||
      grad_mode != c10::GradMode::is_enabled() || default_dtype != c10::get_default_dtype() ||
      (autocast && autocast != compat::autocast_state()))  // whether it is on, the keys above say
    return false;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!inputs[i].fits(tensors[i])) return false;
  for (size_t i = 1; i < same_as.size(); ++i)
    if (number_among(tensors, tensors[i]) != same_as[i]) return false;
  for (const FixedSize& size : sizes)
    if (tensors[size.input].unsafeGetTensorImpl()->size(size.dim) != size.size) return false;
  for (const SameSize& same : same_sizes)
    if (tensors[same.input].unsafeGetTensorImpl()->size(same.dim) !=
        tensors[same.other].unsafeGetTensorImpl()->size(same.other_dim))
      return false;
  for (const SizeCondition& condition : conditions)
    if (!condition.holds(tensors)) return false;
  for (const HeldParam& held : params)
    if (!is_held(held, tensors)) return false;
  for (const SizeRange& range : ranges) {
    const int64_t size = tensors[range.input].unsafeGetTensorImpl()->size(range.dim);
    if (size < range.min || size > range.max) return false;
  }
  for (const GuardedVariable& variable : variables)
    if (!variable.holds(script_variables)) return false;
  return true;
}

size_t Guards::heap_bytes() const {
  using graph::heap_bytes;
  size_t bytes = heap_bytes(inputs) + heap_bytes(sizes) + heap_bytes(same_sizes) + heap_bytes(conditions) +
                 heap_bytes(params) + heap_bytes(ranges) + heap_bytes(variables) + heap_bytes(size_lines) +
                 heap_bytes(same_size_lines) + heap_bytes(condition_lines) + heap_bytes(kind_lines);
  for (const GuardedVariable& variable : variables) bytes += heap_bytes(variable.sizes);
  return bytes;
}

std::string Guards::failure(at::ArrayRef<at::Tensor> tensors, const std::vector<std::string>& names,
                            at::ArrayRef<at::Tensor> script_variables) const {
  std::ostringstream out;
  for (size_t i = 0; i < inputs.size() && i < tensors.size(); ++i) {
    const InputGuard& guard = inputs[i];
    const at::Tensor& tensor = tensors[i];
    out << "tensor '" << name_of(i, names) << "' ";
    if (tensor.dim() != guard.rank) {
      out << "rank mismatch. expected " << guard.rank << ", actual " << tensor.dim()
          << read_at(kind_lines, i, &KindLines::rank);
      return out.str();
    }
    if (tensor.dtype() != guard.dtype) {
      out << "dtype mismatch. expected " << name_of(guard.dtype) << ", actual " << name_of(tensor.dtype())
          << read_at(kind_lines, i, &KindLines::dtype);
      return out.str();
    }
    if (tensor.requires_grad() != guard.requires_grad) {
      out << "requires_grad mismatch. expected requires_grad=" << guard.requires_grad;
      return out.str();
    }
    if (!guard.fits(tensor)) {
      out << "device or layout mismatch. actual " << tensor.device() << ", " << tensor.layout();
      return out.str();
    }
    out.str("");
  }
  for (size_t i = 1; i < same_as.size(); ++i) {
    const size_t now = number_among(tensors, tensors[i]);
    if (now == same_as[i]) continue;
    const bool was_same = same_as[i] != i;
    out << "tensor '" << name_of(i, names) << "' was "
        << (was_same ? "tensor '" + name_of(same_as[i], names) + "'" : "a separate tensor") << ", is now "
        << (now != i ? "tensor '" + name_of(now, names) + "'" : "a separate tensor");
    return out.str();
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    const FixedSize& size = sizes[i];
    int64_t actual = tensors[size.input].size(size.dim);
    if (actual == size.size) continue;
    out << "tensor '" << name_of(size.input, names) << "' size mismatch at index " << size.dim << ". expected "
        << size.size << ", actual " << actual << made_by(size_lines, i, "read");
    return out.str();
  }
  for (size_t i = 0; i < same_sizes.size(); ++i) {
    const SameSize& same = same_sizes[i];
    const int64_t a = tensors[same.input].size(same.dim), b = tensors[same.other].size(same.other_dim);
    if (a == b) continue;
    out << "tensor '" << name_of(same.input, names) << "' size " << a << " at index " << same.dim
        << " was the size of tensor '" << name_of(same.other, names) << "' at index " << same.other_dim
        << ", which is now " << b << made_by(same_size_lines, i, "compared");
    return out.str();
  }
  const auto input_name = [&](size_t input) { return name_of(input, names); };
  for (size_t i = 0; i < conditions.size(); ++i)
    if (!conditions[i].holds(tensors))
      return "`" + conditions[i].text(input_name) + "` was " +
             (conditions[i].truth() ? "true, is now false" : "false, is now true") +
             made_by(condition_lines, i, "decided");
  for (const HeldParam& held : params)
    if (!is_held(held, tensors))
      return "param '" + input_name(held.input) + "' was " +
             (held.truth ? "true, is now false" : "false, is now true") + made_by({held.where}, 0, "decided");
  for (const SizeRange& range : ranges) {
    const int64_t size = tensors[range.input].size(range.dim);
    if (size >= range.min && size <= range.max) continue;
    out << "tensor '" << name_of(range.input, names) << "' size " << size << " at index " << range.dim
        << " is outside of its marked range, " << range.min << " to " << range.max;
    return out.str();
  }
  for (const GuardedVariable& variable : variables)
    if (!variable.holds(script_variables))
      return "a tensor from outside of the function changed its dtype, device, shape or requires_grad";
  if (config != &get_config()) return "the flags configuration changed";
  if (location_resets != triage::location_resets()) return "ErrorLocation.reset() was called";
  if (dynamic_output_shapes != get_compiler_config().capture_dynamic_output_shape_ops)
    return "triage.config.capture_dynamic_output_shape_ops changed";
  if (grad_mode != c10::GradMode::is_enabled())
    return grad_mode ? "grad mode was on, is now off" : "grad mode was off, is now on";
  return "thread state changed (autocast, inference mode or default dtype)";
}

std::string Guards::text(const std::vector<std::string>& names) const {
  std::ostringstream out;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const InputGuard& guard = inputs[i];
    out << name_of(i, names) << ": dtype " << name_of(guard.dtype) << read_at(kind_lines, i, &KindLines::dtype)
        << ", rank " << guard.rank << read_at(kind_lines, i, &KindLines::rank)
        << (guard.requires_grad ? ", requires grad" : "") << (guard.wrapped ? ", a number" : "") << "\n";
  }
  for (size_t i = 1; i < same_as.size(); ++i)
    if (same_as[i] != i) out << name_of(i, names) << ": the same tensor as " << name_of(same_as[i], names) << "\n";
  for (size_t i = 0; i < sizes.size(); ++i)
    out << name_of(sizes[i].input, names) << ": size(" << sizes[i].dim << ") == " << sizes[i].size << " ("
        << why(size_lines, i, "read by the script") << ")\n";
  for (size_t i = 0; i < same_sizes.size(); ++i)
    out << name_of(same_sizes[i].input, names) << ": size(" << same_sizes[i].dim
        << ") == " << name_of(same_sizes[i].other, names) << ": size(" << same_sizes[i].other_dim << ")"
        << made_by(same_size_lines, i, "compared") << "\n";
  for (size_t i = 0; i < conditions.size(); ++i)
    out << (conditions[i].truth() ? "" : "not ")
        << conditions[i].text([&](size_t input) { return name_of(input, names); }) << " ("
        << why(condition_lines, i, "a condition of the script") << ")\n";
  for (const HeldParam& held : params)
    out << name_of(held.input, names) << " == " << (held.truth ? "true" : "false") << " ("
        << why({held.where}, 0, "a condition of the script") << ")\n";
  for (const SizeRange& range : ranges)
    out << name_of(range.input, names) << ": " << range.min << " <= size(" << range.dim << ") <= " << range.max
        << " (mark_dynamic)\n";
  if (!variables.empty())
    out << variables.size() << (variables.size() == 1 ? " tensor" : " tensors")
        << " that existed before the capture: the same dtype, device, shape, requires_grad; any values\n";
  out << "grad mode " << (grad_mode ? "on" : "off") << ", default dtype " << name_of(default_dtype) << "\n";
  out << "the same as at capture: devices, layouts, which inputs are one tensor, autocast, inference mode, flags "
         "configuration, settings\n";
  return out.str();
}

}  // namespace triage::capture
