#pragma once
#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <memory>
#include <string>

namespace triage::fused {

/// How many threads run a kernel: blocks of `threads` x `rows` (see support/gpu.h), `blocks` x `shared` of them;
/// `shared` blocks compute the same rows.
struct GpuGrid {
  uint32_t threads, rows;
  uint32_t blocks, shared;
  bool cluster = false;  // those that share rows are a cluster
};

/// Machine code of one kernel, for one device.
class GpuCode {
 public:
  virtual ~GpuCode() = default;
  /// Enqueues it on the current stream. `arguments`: one for each of GpuSource::parameters. Throws PolicyError where
  /// the device refuses it. Any thread.
  virtual void launch(const GpuGrid& grid, at::ArrayRef<int64_t> arguments) const = 0;
};

/// What compiles loops for a kind of device, and runs them there.
class Accelerator {
 public:
  virtual ~Accelerator() = default;
  /// Whether blocks of threads can be a cluster.
  virtual bool has_clusters(c10::Device device) const = 0;
  /// `source`, `parameters`: of a GpuSource. Throws std::runtime_error that says why it cannot be.
  virtual std::unique_ptr<const GpuCode> compile(c10::Device device, const std::string& source,
                                                 const std::string& parameters) const = 0;
};

/// Of this kind of device; null where there is none, or LibTorch cannot use it.
const Accelerator* accelerator_of(c10::DeviceType type);
/// For tests. It lives until the process ends.
void set_accelerator(c10::DeviceType type, const Accelerator* accelerator);

/// CUDA, by what LibTorch itself uses: the NVIDIA driver and NVRTC. Null without them, and before CUDA 12.
const Accelerator* cuda_accelerator();

}  // namespace triage::fused
