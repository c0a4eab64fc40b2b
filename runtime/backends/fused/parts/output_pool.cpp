#include "runtime/backends/fused/parts/output_pool.h"

#include <ATen/ATen.h>

#include <triage/output_memory.h>

#include <unordered_set>

#include "runtime/compat/unique_owner.h"
#include "runtime/messages/fork_safe_mutex.h"

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
  messages::ForkSafeMutex mutex;
  std::unordered_set<OutputPool*> pools;
};

/// Never destroyed: graphs may be, after everything else.
AllPools& all_pools() {
  static AllPools& all = *new AllPools;
  return all;
}

}  // namespace

OutputPool::OutputPool(size_t most, bool any_size)
    : most_(most), any_size_(any_size), kept_(std::make_unique<Slot[]>(most)) {
  AllPools& all = all_pools();
  const std::lock_guard lock(all.mutex);
  all.pools.insert(this);
}

OutputPool::~OutputPool() {
  {
    AllPools& all = all_pools();
    const std::lock_guard lock(all.mutex);
    all.pools.erase(this);
  }
  for (size_t i = 0; i < most_; ++i)
    if (c10::StorageImpl* storage = kept_[i].storage.exchange(nullptr)) StoragePointer::reclaim(storage);
}

/// Null where nothing is, or another thread has it.
StoragePointer OutputPool::take(Slot& slot) {
  if (!slot.storage.load(std::memory_order_relaxed)) return {};
  c10::StorageImpl* const taken = slot.storage.exchange(nullptr, std::memory_order_acquire);
  return taken ? StoragePointer::reclaim(taken) : StoragePointer();
}

std::vector<c10::Storage> OutputPool::take_idle() {
  std::vector<c10::Storage> idle;
  for (size_t i = 0; i < most_; ++i) {
    Slot& slot = kept_[i];
    StoragePointer storage = take(slot);
    if (!storage) continue;
    if (compat::is_unique(storage))
      idle.emplace_back(std::move(storage));
    else
      put_back(slot, std::move(storage));
  }
  return idle;
}

size_t OutputPool::bytes() const {
  size_t sum = 0;
  for (size_t i = 0; i < most_; ++i)
    if (kept_[i].storage.load(std::memory_order_relaxed)) sum += kept_[i].bytes.load(std::memory_order_relaxed);
  return sum;
}

void OutputPool::put_back(Slot& slot, c10::intrusive_ptr<c10::StorageImpl> storage) {
  c10::StorageImpl* expected = nullptr;
  c10::StorageImpl* back = storage.release();
  if (!slot.storage.compare_exchange_strong(expected, back, std::memory_order_release))
    StoragePointer::reclaim(back);  // another thread has put one there
}

void OutputPool::keep(StoragePointer storage) {
  for (size_t i = 0; i < most_; ++i) {
    if (kept_[i].storage.load(std::memory_order_relaxed)) continue;
    kept_[i].bytes.store(storage->nbytes(), std::memory_order_relaxed);
    return put_back(kept_[i], std::move(storage));
  }
}

void OutputPool::begin_call(at::ArrayRef<at::Tensor> inputs) {
  uint64_t sizes = 1;
  for (const at::Tensor& input : inputs)
    for (const int64_t size : input.sizes()) sizes = (sizes ^ static_cast<uint64_t>(size)) * 0x9E3779B97F4A7C15u;
  if (sizes_.load(std::memory_order_relaxed) == sizes) return;
  if (sizes_.exchange(sizes, std::memory_order_relaxed) != 0) take_idle();
}

at::Tensor OutputPool::get(at::IntArrayRef sizes, at::ScalarType dtype) {
  size_t bytes = c10::elementSize(dtype);
  for (const int64_t size : sizes) bytes *= static_cast<size_t>(size);
  if (bytes < smallest) {
    if (!any_size_) take_idle();
    return tensor_on(new_storage(bytes), sizes, dtype);
  }
  for (size_t i = 0; i < most_; ++i) {
    Slot& slot = kept_[i];
    StoragePointer storage = take(slot);
    if (!storage) continue;
    const bool unused = compat::is_unique(storage);
    const bool free = unused && storage->nbytes() == bytes;  // whoever holds it may resize it meanwhile
    at::Tensor result;
    if (free) result = tensor_on(storage, sizes, dtype);
    if (!unused || free || any_size_) put_back(slot, std::move(storage));
    if (free) return result;
  }
  StoragePointer storage = new_storage(bytes);
  at::Tensor result = tensor_on(storage, sizes, dtype);
  keep(std::move(storage));
  return result;
}

}  // namespace triage::fused

namespace triage {

size_t kept_output_memory() {
  fused::AllPools& all = fused::all_pools();
  const std::lock_guard lock(all.mutex);
  size_t bytes = 0;
  for (fused::OutputPool* pool : all.pools) bytes += pool->bytes();
  return bytes;
}

size_t free_idle_output_memory() {
  std::vector<c10::Storage> idle;  // freed when nobody waits for the list of pools any more
  {
    fused::AllPools& all = fused::all_pools();
    const std::lock_guard lock(all.mutex);
    for (fused::OutputPool* pool : all.pools)
      for (c10::Storage& storage : pool->take_idle()) idle.push_back(std::move(storage));
  }
  size_t bytes = 0;
  for (const c10::Storage& storage : idle) bytes += storage.nbytes();
  return bytes;
}

}  // namespace triage
