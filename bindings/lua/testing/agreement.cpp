#include "bindings/lua/testing/agreement.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace triage::lua {
namespace {

/// Floats as integers of their bits, every NaN the same.
at::Tensor bits_of(const at::Tensor& tensor) {
  at::Tensor values = tensor.detach().resolve_conj().resolve_neg();
  if (values.is_complex()) values = at::view_as_real(values);
  if (!values.is_floating_point()) return values;
  const at::Tensor is_nan = values.isnan();
  const at::ScalarType integers = values.element_size() == 8   ? at::kLong
                                  : values.element_size() == 4 ? at::kInt
                                  : values.element_size() == 2 ? at::kShort
                                                               : at::kChar;
  return values.contiguous().view(integers).masked_fill(is_nan, -1);
}

std::string kind_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return "nothing";
  return fmt::format("{}[{}] on {}", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "),
                     tensor.device().str());
}

std::string text_of(const at::Tensor& element) {
  if (element.is_complex()) return "another complex number";
  if (element.is_floating_point()) return fmt::format("{:.9g}", element.item<double>());
  return fmt::format("{}", element.item<int64_t>());
}

/// "" where the two are the same.
std::string tensor_difference(const std::string& what, const at::Tensor& plain, const at::Tensor& captured,
                              bool exact) {
  if (!plain.defined() && !captured.defined()) return "";
  if (!plain.defined() || !captured.defined() || plain.scalar_type() != captured.scalar_type() ||
      plain.sizes() != captured.sizes() || plain.device() != captured.device())
    return fmt::format("{} is {} as a plain script and {} captured", what, kind_of(plain), kind_of(captured));
  if (same_bits(plain, captured)) return "";
  if (!exact && plain.is_floating_point() &&
      at::allclose(plain.to(at::kDouble), captured.to(at::kDouble), 1e-5, 1e-5, /*equal_nan=*/true))
    return "";
  const at::Tensor differs = bits_of(plain).ne(bits_of(captured)).flatten();
  const auto first = differs.to(at::kInt).argmax().item<int64_t>();
  const bool wide = plain.is_complex();  // its bits are pairs
  const int64_t element = wide ? first / 2 : first;
  const int64_t row = plain.dim() ? element / (plain.numel() / plain.size(0)) : 0;
  return fmt::format("{} differs in sample {}: {} as a plain script, {} captured", what, row,
                     text_of(plain.detach().flatten()[element]), text_of(captured.detach().flatten()[element]));
}

}  // namespace

bool same_bits(const at::Tensor& a, const at::Tensor& b) { return bits_of(a).equal(bits_of(b)); }

std::string difference(const Outcome& plain, const Outcome& captured, const std::vector<std::string>& names,
                       bool exact) {
  if (plain.outputs.size() != captured.outputs.size())
    return fmt::format("as a plain script it returns {} tensors, captured {}", plain.outputs.size(),
                       captured.outputs.size());
  if (plain.flags != captured.flags) return "the plain script and the captured run mark different outputs as flags";
  for (size_t i = 0; i < plain.outputs.size(); ++i) {
    const std::string name = i < names.size() ? names[i] : fmt::format("out{}", i);
    const std::string found =
        tensor_difference(fmt::format("output '{}'", name), plain.outputs[i], captured.outputs[i], exact);
    if (!found.empty()) return found;
  }
  for (size_t i = 0; i < plain.gradients.size(); ++i) {
    const std::string found =
        tensor_difference(fmt::format("gradient {}", i), plain.gradients[i], captured.gradients[i], exact);
    if (!found.empty()) return found;
  }
  return "";
}

}  // namespace triage::lua
