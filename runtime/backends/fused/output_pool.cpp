#include "runtime/backends/fused/output_pool.h"

#include <ATen/ATen.h>

#include "runtime/compat/unique_owner.h"

namespace triage::fused {
namespace {

using StoragePointer = c10::intrusive_ptr<c10::StorageImpl>;

StoragePointer new_storage(size_t bytes) {
  c10::Allocator* allocator = c10::GetAllocator(c10::kCPU);
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, allocator->allocate(bytes),
                                               allocator, /*resizable=*/true);
}

/// What at::empty does, without its way through the dispatcher, which takes longer than this.
at::Tensor tensor_on(const StoragePointer& storage, at::IntArrayRef sizes, at::ScalarType dtype) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return tensor;
}

}  // namespace

OutputPool::~OutputPool() {
  for (auto& slot : kept_)
    if (c10::StorageImpl* storage = slot.exchange(nullptr)) StoragePointer::reclaim(storage);
}

/// Frees the buffers that nobody holds.
void OutputPool::let_go() {
  for (auto& slot : kept_) {
    if (!slot.load(std::memory_order_relaxed)) continue;
    c10::StorageImpl* taken = slot.exchange(nullptr, std::memory_order_acquire);
    if (!taken) continue;
    StoragePointer storage = StoragePointer::reclaim(taken);
    if (compat::is_unique(storage)) continue;
    c10::StorageImpl* expected = nullptr;
    c10::StorageImpl* back = storage.release();
    if (!slot.compare_exchange_strong(expected, back, std::memory_order_release)) StoragePointer::reclaim(back);
  }
}

at::Tensor OutputPool::get(at::IntArrayRef sizes, at::ScalarType dtype) {
  size_t bytes = c10::elementSize(dtype);
  for (const int64_t size : sizes) bytes *= static_cast<size_t>(size);
  if (bytes < smallest) {
    let_go();
    return tensor_on(new_storage(bytes), sizes, dtype);
  }
  for (auto& slot : kept_) {
    c10::StorageImpl* taken = slot.exchange(nullptr, std::memory_order_acquire);
    if (!taken) continue;
    StoragePointer storage = StoragePointer::reclaim(taken);
    const bool unused = compat::is_unique(storage);
    const bool free = unused && storage->nbytes() == bytes;  // whoever holds it may resize it meanwhile
    at::Tensor result;
    if (free) result = tensor_on(storage, sizes, dtype);
    if (!unused || free) {
      c10::StorageImpl* expected = nullptr;
      c10::StorageImpl* back = storage.release();
      if (!slot.compare_exchange_strong(expected, back, std::memory_order_release)) StoragePointer::reclaim(back);
    }
    if (free) return result;
  }
  StoragePointer storage = new_storage(bytes);
  at::Tensor result = tensor_on(storage, sizes, dtype);
  c10::StorageImpl* mine = storage.release();
  for (auto& slot : kept_) {
    c10::StorageImpl* expected = nullptr;
    if (slot.compare_exchange_strong(expected, mine, std::memory_order_release)) return result;
  }
  StoragePointer::reclaim(mine);
  return result;
}

}  // namespace triage::fused
