#pragma once
#include <ATen/core/Tensor.h>
#include <runtime/flags/composites/known_rows.h>

#include <optional>

namespace triage::flags::composite {

/// The words of a flags tensor as integers: the tensor itself, or a view of a float carrier's bits.
at::Tensor bits_of(const at::Tensor& flags);
/// (N, slots) integers, one column a slot, of all words.
at::Tensor slots_of(const at::Tensor& flags);
at::Tensor severity_of(const at::Tensor& slots);
/// A mask, (N,) or (N, 1), made to broadcast over the rows of a tensor of `dim` dims.
at::Tensor over_rows(const at::Tensor& mask, int64_t dim);

/// Which elements `replace` replaces; undefined where nothing is asked for.
at::Tensor replaced(const at::Tensor& z, bool nan, bool posinf, bool neginf, at::ArrayRef<double> values,
                    at::IntArrayRef integers);

/// The arguments of a push of one error.
struct Push {
  int64_t code, location, severity, num_slots, policy;
};

RowTable empty_rows(int64_t words, at::ScalarType carrier);
/// What is known of a mask, (N,) or (N, 1), if only that it is one.
RowTable known_mask(const at::Tensor& mask);
/// The records after a push where the mask holds; nothing where that takes too many masks.
std::optional<RowTable> pushed_rows(const RowTable& records, const RowTable& where, const Push& push);
/// The flags after a push where the mask holds.
at::Tensor recorded(const at::Tensor& flags, const Push& push, const RowTable& where);

}  // namespace triage::flags::composite
