#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/dlpack.h>
#include <c10/util/SmallVector.h>
// After LibTorch's DLPack, which the header then takes.
#include <triage_c.h>

#include <triage/graph.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

/// DLPack tensors as ATen tensors and back, without copies. LibTorch's own conversion is not used: in 1.13 it ignores
/// byte_offset, never frees a tensor without elements, and refuses bool.
namespace triage::c {

/// Over the memory of `tensor`, which stays whose it is. Throws Misuse that begins with `what` and `number`.
at::Tensor borrow(const DLManagedTensor* tensor, const char* what, size_t number = 0);

/// Tensors that a call gets. Those with a deleter it takes over: the deleter is called when nothing uses them any more.
/// The others it borrows: their memory is the host's again when the call ends.
class ReceivedTensors {
 public:
  explicit ReceivedTensors(const char* what) : what_(what) {}
  ReceivedTensors(ReceivedTensors&& other) noexcept : what_(other.what_), taken_(std::move(other.taken_)) {
    other.taken_.clear();
  }
  ReceivedTensors& operator=(ReceivedTensors&&) = delete;
  ~ReceivedTensors();
  void add(DLManagedTensor* tensor);
  /// Throws Misuse.
  at::ArrayRef<at::Tensor> tensors();
  /// Before the call returns: gives what still uses borrowed memory (an output, a variable of a script) a copy of it.
  void give_back();

 private:
  const char* what_;
  c10::SmallVector<at::Tensor, 8> tensors_;
  c10::SmallVector<bool, 8> borrowed_;
  c10::SmallVector<DLManagedTensor*, 8> taken_;
};

/// Its deleter releases `tensor`. Throws Misuse for what DLPack cannot describe.
DLManagedTensor* give(at::Tensor tensor, const char* what, size_t number);

/// Tensors that a callback of the host reads, and frees none of.
class Lent {
 public:
  Lent() = default;
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  ~Lent() {
    for (DLManagedTensor* tensor : tensors_) tensor->deleter(tensor);
  }
  void add(DLManagedTensor* tensor) { tensors_.push_back(tensor); }
  const std::vector<DLManagedTensor*>& tensors() const { return tensors_; }

 private:
  std::vector<DLManagedTensor*> tensors_;
};

/// Describes a tensor without its data. Throws as `give` does.
struct DlpackDescription {
  DlpackDescription(const graph::TensorMeta& meta, const char* what, size_t number);
  std::vector<int64_t> sizes;  // its memory is that of managed's shape, wherever this is moved
  DLManagedTensor managed{};
};
/// What such a tensor says of dtype and sizes. Throws Misuse.
graph::TensorMeta form_of(const DLManagedTensor* tensor, const char* what, size_t number);
/// Throws Misuse for a device that this LibTorch does not have.
at::Device device_of(const DLDevice& device, const char* what);

}  // namespace triage::c
