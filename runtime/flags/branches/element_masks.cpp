#include "runtime/flags/branches/element_masks.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <algorithm>

#include "runtime/flags/checks.h"

namespace triage::flags::elements {
namespace {

bool fit(at::IntArrayRef mask, at::IntArrayRef sizes) {
  for (size_t i = 0; i < mask.size(); ++i)
    if (mask[i] != sizes[i] && mask[i] != 1 && sizes[i] != 1) return false;
  return true;
}

/// Whether any holds of those that have one place in a tensor with 1 in these dimensions.
at::Tensor any_along(at::Tensor mask, at::IntArrayRef sizes) {
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] == 1 && mask.size(static_cast<int64_t>(i)) != 1) mask = at::any(mask, static_cast<int64_t>(i), true);
  return mask;
}

/// The mask at the dimensions from `first` on, for a tensor of more dimensions.
std::optional<at::Tensor> placed(const at::Tensor& mask, at::IntArrayRef sizes, size_t first) {
  const at::IntArrayRef own = sizes.slice(first, static_cast<size_t>(mask.dim()));
  if (!fit(mask.sizes(), own)) return std::nullopt;
  const at::Tensor reduced = any_along(mask, own);
  if (reduced.dim() == static_cast<int64_t>(sizes.size())) return reduced;
  std::vector<int64_t> shape(sizes.size(), 1);
  std::copy(reduced.sizes().begin(), reduced.sizes().end(), shape.begin() + static_cast<std::ptrdiff_t>(first));
  return at::reshape(reduced, shape);
}

/// The same for a tensor of fewer dimensions, which are those of the mask from `first` on.
std::optional<at::Tensor> reduced_to(const at::Tensor& mask, at::IntArrayRef sizes, size_t first) {
  if (!fit(mask.sizes().slice(first, sizes.size()), sizes)) return std::nullopt;
  at::Tensor rest = mask;
  const auto end = static_cast<int64_t>(first + sizes.size());
  for (int64_t dim = mask.dim(); dim-- > 0;)
    if (dim < static_cast<int64_t>(first) || dim >= end) rest = at::any(rest, dim);
  return any_along(rest, sizes);
}

}  // namespace

std::optional<at::Tensor> over(const at::Tensor& mask, at::IntArrayRef sizes) {
  const auto rank = static_cast<size_t>(mask.dim());
  if (sizes.empty()) return at::any(mask);
  const bool more = sizes.size() >= rank;
  const size_t last = more ? sizes.size() - rank : rank - sizes.size();
  const auto at_dim = [&](size_t first) { return more ? placed(mask, sizes, first) : reduced_to(mask, sizes, first); };
  const auto from_last = at_dim(last);
  if (last == 0) return from_last;
  const auto from_first = at_dim(0);
  // A square mask leaves open which is meant: nothing is guarded that one of the two takes.
  if (from_last && from_first) return at::logical_or(*from_last, *from_first);
  return from_last ? from_last : from_first;
}

at::Tensor broadcast(const at::Tensor& a, const at::Tensor& b, const at::Tensor& taken) {
  check::guard_elements(a, b, taken);
  const auto sizes = at::infer_size(a.sizes(), b.sizes());
  return at::IntArrayRef(sizes) == a.sizes() ? at::alias(a) : a.expand(sizes);
}

}  // namespace triage::flags::elements
