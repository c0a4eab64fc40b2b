#pragma once
// What calls cost in memory: bytes of tensors, and pages.
#include <c10/core/CPUAllocator.h>
#include <sys/resource.h>
#include <torch/version.h>

#include <atomic>
#include <cstdint>

namespace triage::test {

/// What the CPU's tensors take: now, and at most since it was asked to begin; and how many large blocks were taken
/// since then.
class CountedTensorMemory final : public c10::Allocator {
 public:
  CountedTensorMemory() : inner_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, 100); }
  ~CountedTensorMemory() override { c10::SetCPUAllocator(inner_, 100); }
  CountedTensorMemory(const CountedTensorMemory&) = delete;
  CountedTensorMemory& operator=(const CountedTensorMemory&) = delete;

#if TORCH_VERSION_MAJOR >= 2
  c10::DataPtr allocate(size_t bytes) override { return counted(bytes); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
#else
  c10::DataPtr allocate(size_t bytes) const override { return counted(bytes); }
#endif

  void begin() {
    highest_ = now_.load();
    large_blocks_ = 0;
  }
  size_t now() const { return now_; }
  size_t highest() const { return highest_; }
  int large_blocks() const { return large_blocks_; }  // of 16 kB and more

 private:
  struct Block {
    c10::DataPtr memory;
    size_t bytes;
  };
  c10::DataPtr counted(size_t bytes) const {
    auto* block = new Block{inner_->allocate(bytes), bytes};
    if (bytes >= 16 << 10) ++large_blocks_;
    now_ += bytes;
    if (now_ > highest_) highest_ = now_.load();
    return {block->memory.get(), block,
            [](void* context) {
              auto* gone = static_cast<Block*>(context);
              now_ -= gone->bytes;
              delete gone;
            },
            c10::Device(c10::kCPU)};
  }
  c10::Allocator* inner_;
  inline static std::atomic<size_t> now_{0}, highest_{0};
  inline static std::atomic<int> large_blocks_{0};
};

/// Of this thread so far: pages that the system had to give it.
inline int64_t page_faults() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

}  // namespace triage::test
