#pragma once
#include <ATen/core/Tensor.h>

#include <atomic>
#include <memory>
#include <vector>

namespace triage::fused {

/// Memory for an output of a group, for the result of a call between two, or for all of those of a graph of several
/// parts. A fresh tensor of megabytes costs more in page faults than in the work on it, and from 64 kB on `free` puts
/// the whole heap in order, which costs more than the work on so many bytes; memory that an earlier call gave out, or
/// an earlier part of this one, is given again when nobody holds it any more (no tensor, no view, no storage). Small
/// tensors are the allocator's. Lock-free.
class OutputPool {
 public:
  /// Of one output: four buffers of one size, until a call of another.
  OutputPool() : OutputPool(4, false) {}
  /// Of several results: at most so many buffers, until the inputs of a call have other sizes.
  explicit OutputPool(size_t most) : OutputPool(most, true) {}
  ~OutputPool();
  OutputPool(const OutputPool&) = delete;
  OutputPool& operator=(const OutputPool&) = delete;

  static constexpr size_t smallest = 4 << 10;  // bytes, a page; below, malloc is as fast, and threads do not meet

  /// A contiguous CPU tensor, its values undefined.
  at::Tensor get(at::IntArrayRef sizes, at::ScalarType dtype);

  /// Takes out the buffers that nobody holds.
  std::vector<c10::Storage> take_idle();

  /// Of the buffers kept, as large as they were made.
  size_t bytes() const;

  /// Frees what nobody holds where the inputs of the call have other sizes than those of the last one: so do results.
  void begin_call(at::ArrayRef<at::Tensor> inputs);

 private:
  OutputPool(size_t most, bool any_size);
  struct Slot {
    std::atomic<c10::StorageImpl*> storage{nullptr};  // owns one reference
    std::atomic<size_t> bytes{0};                     // of that; whoever holds it may resize it
  };
  static c10::intrusive_ptr<c10::StorageImpl> take(Slot& slot);
  static void put_back(Slot& slot, c10::intrusive_ptr<c10::StorageImpl> storage);
  void keep(c10::intrusive_ptr<c10::StorageImpl> storage);
  const size_t most_;
  const bool any_size_;
  std::unique_ptr<Slot[]> kept_;
  std::atomic<uint64_t> sizes_{0};  // of the last call's inputs
};

}  // namespace triage::fused
