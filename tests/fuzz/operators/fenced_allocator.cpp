#include "tests/fuzz/operators/fenced_allocator.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace triage::fuzz {
namespace {

constexpr size_t page = 4096;
constexpr size_t large = SIZE_MAX;
constexpr size_t zone = 64;                    // bytes beside a block that are checked
constexpr uint64_t most_bytes = 512ull << 20;  // alive at once
constexpr size_t refilled = 64 << 10;          // a freed block is filled up to here
constexpr unsigned char freed = 0x6b;

/// `count` slots of pages, each followed by a fence; one fence in front of them all.
unsigned char* map_slots(size_t pages, size_t count) {
  const size_t bytes = page + count * (pages + 1) * page;
  void* memory = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TORCH_CHECK(memory != MAP_FAILED, "not enough memory: no room for ", bytes, " bytes");
  auto* first = static_cast<unsigned char*>(memory) + page;
  for (size_t i = 0; i < count; ++i)
    TORCH_CHECK(::mprotect(first + i * (pages + 1) * page, pages * page, PROT_READ | PROT_WRITE) == 0,
                "not enough memory");
  return first;
}

}  // namespace

FencedAllocator& FencedAllocator::install() {
  static FencedAllocator* const allocator = [] {
    auto* made = new FencedAllocator;  // tensors outlive whoever asks
    c10::SetCPUAllocator(made, 100);
    return made;
  }();
  return *allocator;
}

unsigned char* FencedAllocator::slot_of(size_t kind) {
  Kind& slots = kinds_[kind];
  if (slots.free.empty()) {
    constexpr size_t count = 16;
    unsigned char* first = map_slots(slots.pages, count);
    for (size_t i = count; i > 0; --i) slots.free.push_back(first + (i - 1) * (slots.pages + 1) * page);
  }
  unsigned char* slot = slots.free.back();
  slots.free.pop_back();
  return slot;
}

void* FencedAllocator::take(size_t bytes) {
  if (bytes == 0) return nullptr;
  std::lock_guard lock(mutex_);
  highest_ = std::max(highest_, live_ + bytes < bytes ? UINT64_MAX : live_ + bytes);
  // The words of LibTorch's own allocator.
  TORCH_CHECK(bytes <= most_bytes && live_ + bytes <= most_bytes,
              "DefaultCPUAllocator: can't allocate memory: you tried to allocate ", bytes, " bytes.");
  const size_t pages = (bytes + page - 1) / page;
  size_t kind = 0;
  while (kind < kinds_.size() && kinds_[kind].pages < pages) ++kind;
  if (kind == kinds_.size()) kind = large;
  Block block{nullptr, nullptr, bytes, kind == large ? pages : kinds_[kind].pages, kind};
  block.slot = block.data = kind == large ? map_slots(pages, 1) : slot_of(kind);
  if (fence_behind) block.data += block.pages * page - (bytes + 15) / 16 * 16;
  surround(block, false);
  std::memset(block.data, fill, bytes);
  live_ += bytes;
  recent_[next_recent_++ % remembered] = block;
  blocks_.emplace(block.data, block);
  return block.data;
}

void FencedAllocator::release(void* data) {
  if (!data) return;
  FencedAllocator& self = install();
  std::lock_guard lock(self.mutex_);
  auto found = self.blocks_.find(data);
  TORCH_CHECK(found != self.blocks_.end(), "memory is freed that was not allocated");
  self.release(found->second);
  self.blocks_.erase(found);
}

void FencedAllocator::release(const Block& block) {
  surround(block, true);
  live_ -= block.bytes;
  if (block.kind == large) {
    ::munmap(block.slot - page, (block.pages + 2) * page);
    return;
  }
  std::memset(block.data, freed, std::min(block.bytes, refilled));
  kinds_[block.kind].free.push_back(block.slot);
}

/// Marks what lies beside a block within its pages, or looks whether the mark is whole.
void FencedAllocator::surround(const Block& block, bool check) {
  unsigned char* const end = block.slot + block.pages * page;
  unsigned char* const zones[2][2] = {
      {std::max(block.slot, block.data - std::min<size_t>(zone, static_cast<size_t>(block.data - block.slot))),
       block.data},
      {block.data + block.bytes, std::min(end, block.data + block.bytes + zone)}};
  for (const auto& [from, to] : zones) {
    if (!check)
      std::memset(from, 0xc3, static_cast<size_t>(to - from));
    else
      damaged_ |= std::any_of(from, to, [](unsigned char byte) { return byte != 0xc3; });
  }
}

void FencedAllocator::begin() {
  std::lock_guard lock(mutex_);
  at_begin_ = highest_ = live_;
  damaged_ = false;
}

bool FencedAllocator::describe(const void* address, char* text, size_t size) const {
  const auto* at = static_cast<const unsigned char*>(address);
  for (size_t i = 0; i < remembered; ++i) {
    const Block& block = recent_[(next_recent_ + remembered - 1 - i) % remembered];
    if (!block.slot || at < block.slot - page || at >= block.slot + (block.pages + 1) * page) continue;
    const bool behind = at >= block.data;
    std::snprintf(text, size, "%ld bytes %s the beginning of a block of %zu bytes",
                  static_cast<long>(behind ? at - block.data : block.data - at), behind ? "behind" : "before",
                  block.bytes);
    return true;
  }
  return false;
}

}  // namespace triage::fuzz
