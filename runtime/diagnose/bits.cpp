#include "runtime/diagnose/bits.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace triage::diagnose {
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

std::string text_of(const at::Tensor& element) {
  if (element.is_complex()) return "another complex number";
  if (element.is_floating_point()) return fmt::format("{:.9g}", element.item<double>());
  return fmt::format("{}", element.item<int64_t>());
}

}  // namespace

bool same_bits(const at::Tensor& a, const at::Tensor& b) { return bits_of(a).equal(bits_of(b)); }

at::Tensor differing(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor differs = bits_of(a).ne(bits_of(b));
  return a.is_complex() ? differs.any(-1) : differs;  // the bits of a complex number are a pair
}

BitDifference first_difference(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor differs = bits_of(a).ne(bits_of(b)).flatten();
  const auto first = differs.to(at::kInt).argmax().item<int64_t>();
  const bool wide = a.is_complex();  // its bits are pairs
  const int64_t element = wide ? first / 2 : first;
  const int64_t row = a.dim() ? element / (a.numel() / a.size(0)) : 0;
  return {row, text_of(a.detach().flatten()[element]), text_of(b.detach().flatten()[element])};
}

std::string kind_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return "nothing";
  return fmt::format("{}[{}] on {}", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "),
                     tensor.device().str());
}

bool same_kind(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() == b.defined() &&
         (!a.defined() || (a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.device() == b.device()));
}

}  // namespace triage::diagnose
