#pragma once
#include <atomic>
#include <memory>
#include <string>

#include "runtime/backends/fused/gpu/accelerator.h"

namespace triage::fused {

/// Loops for a GPU (loops/gpu_text.h).
struct GpuProgram {
  std::string source, parameters;
  c10::Device device;
};

/// A generated function for a GPU, on its way from source to machine code. Never unloaded: some stream may be running
/// it.
class GpuKernel {
 public:
  /// Null until it is compiled, or when it cannot be. Any thread.
  const GpuCode* code() const noexcept { return code_.load(std::memory_order_acquire); }
  /// Waits until it is decided whether there is one. In a forked child too.
  void wait() const;

 private:
  friend class GpuCompiler;
  std::atomic<const GpuCode*> code_{nullptr};
  bool finished_ = false;  // the compiler's mutex guards it
};

/// The kernel of a program, which a thread in the background compiles by the accelerator of that device: that takes no
/// other process and no file. Equal programs share a kernel. `graph`: the name of the graph that asks, for messages.
std::shared_ptr<const GpuKernel> gpu_kernel_of(const GpuProgram& program, const std::string& graph);

}  // namespace triage::fused
