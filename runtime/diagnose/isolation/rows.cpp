#include "runtime/diagnose/isolation/rows.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>

#include "runtime/diagnose/bits.h"
#include "runtime/graph/text/describe.h"

namespace triage::diagnose {
namespace {

/// Which indices of `dim` have an element that differs.
at::Tensor indices_along(const at::Tensor& differs, int64_t dim) {
  return differs.transpose(0, dim).reshape({differs.size(dim), -1}).any(1);
}

bool only_within(const at::Tensor& indices, int64_t begin, int64_t end) {
  return !indices.slice(0, 0, begin).any().item<bool>() && !indices.slice(0, end).any().item<bool>();
}

/// Merged with other dims, a sample is a block where it came first, else every so manieth index.
bool is_of_sample(const at::Tensor& indices, int64_t samples, int64_t row) {
  const int64_t size = indices.size(0), block = size / samples;
  if (only_within(indices, row * block, (row + 1) * block)) return true;
  return block > 1 && only_within(indices.view({block, samples}).any(0), row, row + 1);
}

/// Of flags the bits themselves: a float that carries them may be any NaN.
at::Tensor difference_of(const at::Tensor& clean, const at::Tensor& other, bool is_flags) {
  if (!is_flags || !clean.is_floating_point()) return differing(clean, other);
  const at::ScalarType bits = clean.element_size() == 8 ? at::kLong : at::kInt;
  return clean.detach().contiguous().view(bits).ne(other.detach().contiguous().view(bits));
}

std::string form_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return "nothing";
  return fmt::format("{} {}", graph::dtype_name(tensor.scalar_type()),
                     tensor.dim() == 0 ? "0-dim" : fmt::format("{}", fmt::join(tensor.sizes(), "x")));
}

}  // namespace

Spread spread_of(const at::Tensor& clean, const at::Tensor& other, int64_t samples, int64_t row, bool is_flags) {
  if (!clean.defined() && !other.defined()) return Spread::nowhere;
  if (!same_kind(clean, other)) return Spread::others;
  const at::Tensor differs = difference_of(clean, other, is_flags);
  if (!differs.any().item<bool>()) return Spread::nowhere;
  for (int64_t dim = 0; dim < differs.dim(); ++dim)
    if (differs.size(dim) % samples == 0 && is_of_sample(indices_along(differs, dim), samples, row))
      return Spread::own_sample;
  return Spread::others;
}

std::optional<int64_t> dim_of_one_index(const at::Tensor& clean, const at::Tensor& other, int64_t samples,
                                        bool is_flags) {
  if (!clean.defined() || !same_kind(clean, other)) return std::nullopt;
  const at::Tensor differs = difference_of(clean, other, is_flags);
  std::optional<int64_t> found;
  for (int64_t dim = 0; dim < differs.dim(); ++dim) {
    if (differs.size(dim) % samples == 0) return std::nullopt;
    if (!found && differs.size(dim) > 1 && indices_along(differs, dim).sum().item<int64_t>() == 1) found = dim;
  }
  return found;
}

std::optional<int64_t> dim_of_samples(const at::Tensor& output, int64_t samples) {
  for (int64_t dim = 0; dim < output.dim(); ++dim)
    if (output.size(dim) == samples) return dim;
  return std::nullopt;
}

OutputChange change_of(const at::Tensor& clean, const at::Tensor& other, int64_t samples, int64_t row, bool is_flags) {
  OutputChange change;
  if (!same_kind(clean, other)) {
    change.spread = Spread::others;
    change.form = fmt::format("{} became {}", form_of(clean), form_of(other));
    return change;
  }
  if (!clean.defined()) return change;
  const std::optional<int64_t> dim = dim_of_samples(clean, samples);
  if (!dim) {
    change.spread = spread_of(clean, other, samples, row, is_flags);
    return change;
  }
  const at::Tensor changed =
      indices_along(difference_of(clean, other, is_flags), *dim).nonzero().flatten().to(at::kCPU);
  const int64_t* const rows = changed.data_ptr<int64_t>();
  for (int64_t i = 0; i < changed.numel(); ++i)
    if (rows[i] != row) change.rows.push_back(rows[i]);
  change.spread = !change.rows.empty() ? Spread::others : changed.numel() > 0 ? Spread::own_sample : Spread::nowhere;
  return change;
}

}  // namespace triage::diagnose
