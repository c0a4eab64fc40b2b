#pragma once
#include <c10/core/CPUAllocator.h>
#include <torch/version.h>

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace triage::fuzz {

/// The CPU's allocator while operators are tried. A block lies against a page that nobody may touch, behind it or in
/// front of it: a kernel that reads or writes beyond a tensor ends by a signal, instrumented or not. New memory is
/// filled, so that results made of it differ between two fills; what is left of the block's pages is checked when it is
/// freed.
class FencedAllocator final : public c10::Allocator {
 public:
  /// Takes the place of the CPU's allocator, for ever.
  static FencedAllocator& install();

  unsigned char fill = 0x3f;
  bool fence_behind = true;  // else in front

#if TORCH_VERSION_MAJOR >= 2
  c10::DataPtr allocate(size_t bytes) override { return as_pointer(take(bytes)); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
#else
  c10::DataPtr allocate(size_t bytes) const override {
    return as_pointer(const_cast<FencedAllocator*>(this)->take(bytes));
  }
#endif
  c10::DeleterFnPtr raw_deleter() const override { return &FencedAllocator::release; }

  /// Starts to measure a call.
  void begin();
  /// The most bytes that were asked for at once since then, those refused included.
  uint64_t highest() const { return highest_ - at_begin_; }
  /// Whether a block was found with writes beside it since then.
  bool damaged() const { return damaged_; }
  /// "12 bytes behind a block of 48": what lies at an address of a fault; empty where it is none of ours. For signal
  /// handlers: it takes no lock and allocates nothing.
  bool describe(const void* address, char* text, size_t size) const;

 private:
  struct Block {
    unsigned char* slot;
    unsigned char* data;
    size_t bytes;
    size_t pages;  // without the fence
    size_t kind;   // of slot; `large` where it is mapped by itself
  };
  struct Kind {
    size_t pages;
    std::vector<unsigned char*> free;
  };

  static c10::DataPtr as_pointer(void* data) { return {data, data, &FencedAllocator::release, c10::Device(c10::kCPU)}; }
  void* take(size_t bytes);
  static void release(void* data);
  void release(const Block& block);
  unsigned char* slot_of(size_t kind);
  void surround(const Block& block, bool check);

  std::mutex mutex_;
  std::vector<Kind> kinds_{{1, {}}, {4, {}}, {16, {}}, {64, {}}};
  std::unordered_map<void*, Block> blocks_;  // alive, by their data
  uint64_t live_ = 0, at_begin_ = 0, highest_ = 0;
  bool damaged_ = false;
  static constexpr size_t remembered = 4096;
  Block recent_[remembered] = {};  // for describe()
  size_t next_recent_ = 0;
};

}  // namespace triage::fuzz
