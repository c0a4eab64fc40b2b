#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <algorithm>
#include <cstdint>
#include <functional>

/// The one answer to the question whether tensors share memory. Two views of one tensor have one storage, but blobs of
/// a host (all tensors of the C interface are blobs) have a storage each, whatever memory they describe: addresses
/// decide.
namespace triage {

/// Whether a write to one of them may change the other. Disjoint views of one storage count as shared, because a view
/// may be made larger again. Tensors without memory (undefined, sparse, meta) share none.
inline bool share_memory(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined() || !a.has_storage() || !b.has_storage()) return false;
  if (a.is_alias_of(b)) return true;
  const auto first = [](const at::Tensor& tensor) {
    return static_cast<const char*>(static_cast<const void*>(tensor.storage().data()));
  };
  const char *const of_a = first(a), *const of_b = first(b);
  if (!of_a || !of_b || a.storage().nbytes() == 0 || b.storage().nbytes() == 0 || a.device() != b.device())
    return false;
  const std::less<const char*> before;
  return before(of_a, of_b + b.storage().nbytes()) && before(of_b, of_a + a.storage().nbytes());
}

inline bool shares_memory(const at::Tensor& tensor, at::ArrayRef<at::Tensor> others) {
  return std::any_of(others.begin(), others.end(),
                     [&](const at::Tensor& other) { return share_memory(other, tensor); });
}

}  // namespace triage
