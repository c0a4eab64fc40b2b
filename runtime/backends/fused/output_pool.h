#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <atomic>
#include <vector>

namespace triage::fused {

/// Memory for one output of a group, or of a call between two. A fresh tensor of megabytes costs more in page faults than in the work on it, and from
/// 64 kB on `free` puts the whole heap in order, which costs more than the work on so many bytes; memory that
/// an earlier call gave out is given again when nobody holds it any more (no tensor, no view, no storage). At most four
/// buffers are kept, until a call of another size or the end of the group; small tensors are the allocator's. Lock-free.
class OutputPool {
 public:
  OutputPool();
  ~OutputPool();
  OutputPool(const OutputPool&) = delete;
  OutputPool& operator=(const OutputPool&) = delete;

  static constexpr size_t smallest = 16 << 10;  // bytes; below, malloc is as fast, and threads do not meet

  /// A contiguous CPU tensor, its values undefined.
  at::Tensor get(at::IntArrayRef sizes, at::ScalarType dtype);

  /// Takes out the buffers that nobody holds.
  std::vector<c10::Storage> take_idle();

 private:
  static void put_back(std::atomic<c10::StorageImpl*>& slot, c10::intrusive_ptr<c10::StorageImpl> storage);
  std::array<std::atomic<c10::StorageImpl*>, 4> kept_{};  // each owns one reference
};

}  // namespace triage::fused
