#pragma once
#include <ATen/ATen.h>

#include <unordered_map>
#include <vector>

#include "runtime/diagnose/isolation/recording.h"

namespace triage::diagnose {

/// Values of a recording that are known by the tensors that hold them. A tensor that was written to since is another
/// value. Keeps copies, because operators may write to what they read, and weak references to the tensors, so that
/// addresses stay theirs and their memory goes with whoever computes.
class TensorValues {
 public:
  explicit TensorValues(Recording& recording) : recording_(recording) {}

  /// The value that `tensor` holds now; a new one where it was never seen like this.
  size_t of(const at::Tensor& tensor) {
    const auto known = known_.find(tensor.unsafeGetTensorImpl());
    if (known != known_.end() && known->second.version == version_of(tensor)) return known->second.value;
    return add(tensor);
  }
  /// A new value, whatever it held before.
  size_t add(const at::Tensor& tensor) {
    known_.insert_or_assign(tensor.unsafeGetTensorImpl(), VersionedValue{Held(tensor.getIntrusivePtr()),
                                                                         version_of(tensor), recording_.values.size()});
    bytes_ += tensor.numel() * tensor.element_size();
    if (bytes_ > most_bytes) recording_.complete = false;
    recording_.values.push_back(
        {recording_.complete ? tensor.detach().clone() : at::Tensor(), false, tensor.unsafeGetTensorImpl()});
    return recording_.values.size() - 1;
  }
  std::optional<size_t> find(const at::Tensor& tensor) const {
    const auto known = known_.find(tensor.unsafeGetTensorImpl());
    return known == known_.end() ? std::nullopt : std::optional(known->second.value);
  }

 private:
  static constexpr int64_t most_bytes = int64_t{2} << 30;
  using Held = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  struct VersionedValue {
    Held held;
    uint32_t version;
    size_t value;
  };
  static uint32_t version_of(const at::Tensor& tensor) {
    return tensor.is_inference() ? 0 : static_cast<uint32_t>(tensor._version());
  }

  Recording& recording_;
  std::unordered_map<const c10::TensorImpl*, VersionedValue> known_;
  int64_t bytes_ = 0;
};

}  // namespace triage::diagnose
