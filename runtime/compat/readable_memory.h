#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

/// Whether a tensor has memory that a loop may read. Everything that takes the pointer of a tensor which it did not
/// make itself asks this first: LibTorch computes with tensors that have none, or whose elements are not what lies
/// there (zeros that forward-mode AD makes, functional, batched and wrapped tensors, lazily conjugated or negated
/// ones).
namespace triage::compat {

/// Dispatch keys of tensors whose elements are what lies in their storage. An allow-list: a key of a later LibTorch is
/// none of these.
constexpr c10::DispatchKeySet dense_keys =
    c10::DispatchKeySet(
        c10::DispatchKeySet::RAW,
        c10::full_backend_mask & ~(uint64_t{1} << (static_cast<int>(c10::BackendComponent::MetaBit) - 1))) |
    c10::DispatchKeySet(c10::DispatchKey::Dense) | c10::DispatchKeySet(c10::DispatchKey::AutogradFunctionality) |
    c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView) | c10::autocast_dispatch_keyset;

/// Keys of tensors that graphs are captured for: ATen's kernels see to what their elements are.
constexpr c10::DispatchKeySet captured_keys = dense_keys | c10::DispatchKeySet(c10::BackendComponent::MetaBit) |
                                              c10::DispatchKeySet(c10::DispatchKey::Conjugate) |
                                              c10::DispatchKeySet(c10::DispatchKey::Negative) |
                                              c10::DispatchKeySet(c10::DispatchKey::Quantized);

inline bool has_only(const at::Tensor& tensor, const c10::DispatchKeySet& keys) noexcept {
  return keys.isSupersetOf(tensor.unsafeGetTensorImpl()->key_set());
}

/// Where its first element lies, if a loop may read it there; null for a tensor without elements, and for all others.
inline const void* readable_memory(const at::Tensor& tensor) noexcept {
  const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  if (!has_only(tensor, dense_keys) || !impl->has_storage()) return nullptr;
  const auto* const begin = static_cast<const char*>(impl->unsafe_storage().unsafeGetStorageImpl()->data());
  return begin ? begin + impl->storage_offset() * static_cast<int64_t>(impl->itemsize()) : nullptr;
}

/// The question itself; a tensor without elements has all that a loop reads.
inline bool is_readable(const at::Tensor& tensor) noexcept {
  return has_only(tensor, dense_keys) && (tensor.unsafeGetTensorImpl()->numel() == 0 || readable_memory(tensor));
}

/// The context of a null pointer to memory that comes before anybody reads it: a call that is followed knows the form
/// of its tensors before their elements.
inline char memory_to_come = 0;

/// A tensor of the CPU or of CUDA that promises elements in memory which it does not have, or no longer: its storage
/// was freed or made smaller, or it was made of a null pointer. LibTorch's operators crash on these.
inline bool lacks_memory(const at::Tensor& tensor) noexcept {
  const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  if (!has_only(tensor, captured_keys) || impl->numel() == 0 || !impl->has_storage()) return false;
  const c10::StorageImpl& storage = *impl->unsafe_storage().unsafeGetStorageImpl();
  if (!storage.data())
    return (impl->is_cpu() || impl->is_cuda()) && storage.data_ptr().get_context() != &memory_to_come;
  int64_t last = impl->storage_offset();
  if (impl->is_contiguous()) {
    last += impl->numel() - 1;
  } else {
    for (int64_t dim = 0; dim < impl->dim(); ++dim) last += (impl->size(dim) - 1) * impl->stride(dim);
  }
  return static_cast<size_t>(last + 1) * impl->itemsize() > storage.nbytes() && (impl->is_cpu() || impl->is_cuda());
}

}  // namespace triage::compat
