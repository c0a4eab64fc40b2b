#pragma once
#include <ATen/core/Tensor.h>

/// Which tensor it was that a capture saw. No other tensor gets its address while this lives, nor other memory that of
/// its StorageImpl; but its elements are given back as soon as nobody else holds them, so that a capture needs no more
/// memory than the script by itself.
namespace triage::capture {

class TensorIdentity {
 public:
  explicit TensorIdentity(const at::Tensor& tensor)
      : tensor_(tensor.getIntrusivePtr()),
        storage_(tensor.has_storage() ? tensor.storage().getWeakStorageImpl()
                                      : Storage(c10::intrusive_ptr<c10::StorageImpl>())),
        memory_(tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr) {}
  /// Undefined once the tensor is gone.
  at::Tensor tensor() const { return at::Tensor(tensor_.lock()); }
  /// Whether it had the memory of `other`. Still true when it is gone: what depends on it may not depend on the time at
  /// which a script's garbage is collected.
  bool shared_memory_with(const at::Tensor& other) const {
    return memory_ && other.has_storage() && other.storage().unsafeGetStorageImpl() == memory_;
  }

 private:
  using Storage = c10::weak_intrusive_ptr<c10::StorageImpl>;
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor_;
  Storage storage_;
  const c10::StorageImpl* memory_;
};

}  // namespace triage::capture
