#pragma once
#include <ATen/core/Tensor.h>

namespace triage::flags::composite {

/// The words of a flags tensor as integers: the tensor itself, or a view of a float carrier's bits.
at::Tensor bits_of(const at::Tensor& flags);
/// (N, slots) integers, one column a slot, of all words.
at::Tensor slots_of(const at::Tensor& flags);
/// A mask (N,) made to broadcast over the rows of a tensor of `dim` dims.
at::Tensor over_rows(const at::Tensor& mask, int64_t dim);

/// Which elements `replace` replaces; undefined where nothing is asked for.
at::Tensor replaced(const at::Tensor& z, bool nan, bool posinf, bool neginf, at::ArrayRef<double> values,
                    at::IntArrayRef integers);

}  // namespace triage::flags::composite
