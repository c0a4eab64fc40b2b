#include "runtime/backends/fused/output_pool.h"

#include <ATen/ATen.h>

#include <triage/output_memory.h>

#include <mutex>
#include <unordered_set>

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

struct AllPools {
  std::mutex mutex;
  std::unordered_set<OutputPool*> pools;
};

/// Never destroyed: graphs may be, after everything else.
AllPools& all_pools() {
  static AllPools* all = new AllPools;
  return *all;
}

size_t idle_bytes_of_all(bool free) {
  AllPools& all = all_pools();
  const std::lock_guard<std::mutex> lock(all.mutex);
  size_t bytes = 0;
  for (OutputPool* pool : all.pools) bytes += pool->idle_bytes(free);
  return bytes;
}

}  // namespace

OutputPool::OutputPool() {
  AllPools& all = all_pools();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.pools.insert(this);
}

OutputPool::~OutputPool() {
  {
    AllPools& all = all_pools();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.pools.erase(this);
  }
  for (auto& slot : kept_)
    if (c10::StorageImpl* storage = slot.exchange(nullptr)) StoragePointer::reclaim(storage);
}

size_t OutputPool::idle_bytes(bool free) {
  size_t bytes = 0;
  for (auto& slot : kept_) {
    if (!slot.load(std::memory_order_relaxed)) continue;
    c10::StorageImpl* taken = slot.exchange(nullptr, std::memory_order_acquire);
    if (!taken) continue;
    StoragePointer storage = StoragePointer::reclaim(taken);
    if (compat::is_unique(storage)) {
      bytes += storage->nbytes();
      if (free) continue;
    }
    c10::StorageImpl* expected = nullptr;
    c10::StorageImpl* back = storage.release();
    if (!slot.compare_exchange_strong(expected, back, std::memory_order_release)) StoragePointer::reclaim(back);
  }
  return bytes;
}

at::Tensor OutputPool::get(at::IntArrayRef sizes, at::ScalarType dtype) {
  size_t bytes = c10::elementSize(dtype);
  for (const int64_t size : sizes) bytes *= static_cast<size_t>(size);
  if (bytes < smallest) {
    idle_bytes(/*free=*/true);
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

namespace triage {

size_t idle_output_memory() { return fused::idle_bytes_of_all(/*free=*/false); }
size_t free_idle_output_memory() { return fused::idle_bytes_of_all(/*free=*/true); }

}  // namespace triage
