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

/// The bytes of a storage; empty where a tensor has no memory (undefined, sparse, meta). Who asks of one tensor again
/// and again keeps it.
struct MemoryRange {
  const char *begin = nullptr, *end = nullptr;

  bool overlaps(const MemoryRange& other) const {
    const std::less<const char*> before;
    return before(begin, other.end) && before(other.begin, end);
  }
};

inline MemoryRange memory_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return {};
  const at::Storage& storage = tensor.storage();
  const auto* const first = static_cast<const char*>(static_cast<const void*>(storage.data()));
  return first && storage.nbytes() > 0 ? MemoryRange{first, first + storage.nbytes()} : MemoryRange{};
}

/// Whether a write to one of them may change the other. Disjoint views of one storage count as shared, because a view
/// may be made larger again. Tensors without memory (undefined, sparse, meta) share none.
inline bool share_memory(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined() || !a.has_storage() || !b.has_storage()) return false;
  if (a.is_alias_of(b)) return true;
  return a.device() == b.device() && memory_of(a).overlaps(memory_of(b));
}

inline bool shares_memory(const at::Tensor& tensor, at::ArrayRef<at::Tensor> others) {
  return std::any_of(others.begin(), others.end(),
                     [&](const at::Tensor& other) { return share_memory(other, tensor); });
}

}  // namespace triage
