#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

/// Masks over elements: what they say of tensors of other sizes. A mask of samples is none of these: it has one
/// dimension, and that is the first of the data.
namespace triage::flags::elements {

/// A condition that selects element by element.
inline bool is_mask(const at::Tensor& condition) { return condition.dim() > 1; }

/// `mask` for a tensor of `sizes`, to which the result broadcasts. Dimensions are those of the mask counted from the
/// last, as in `where`; or, if these do not fit, from the first (what a reduction without `keepdim` leaves, or
/// `unsqueeze(-1)` adds to). An element that stands for several of the mask holds if one of those does. Nothing where
/// the sizes do not fit at all.
std::optional<at::Tensor> over(const at::Tensor& mask, at::IntArrayRef sizes);

/// `a` broadcast to `a` and `b`, as a view. `taken` is checked.
at::Tensor broadcast(const at::Tensor& a, const at::Tensor& b, const at::Tensor& taken);

/// Conditions of a branch, combined: those of samples or the batch in one mask (undefined where there is none), those
/// over elements in one for all of the same sizes, since other sizes may be those of other tensors.
struct BranchMasks {
  at::Tensor rows;
  std::vector<at::Tensor> elements;
};

}  // namespace triage::flags::elements
