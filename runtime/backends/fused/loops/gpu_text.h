#pragma once
#include <string>

#include "runtime/backends/fused/loop_call.h"

namespace triage::fused {

/// Loops as CUDA C++ (support/gpu.h): a row belongs to some threads, or (Lanes::rows) each thread has one. Values have
/// the bits of the loops of a CPU with fused multiply-add, with the same lanes; but for those of NaN, and whole numbers
/// that overflow.
struct GpuSource {
  std::string source;  // what stands behind gpu_source(): TRIAGE_KERNEL triage_kernel(...)
  /// Its parameters, 8 bytes each: 'p' a pointer to read, 'o' one to write, 'n' an int64_t. For each of Loops::inputs
  /// the pointer (of a number of the host null), the bytes from one row to the next (of a number of the host its bits),
  /// and what rows lie apart beyond that after each `block`; for each of Loops::outputs the pointer; for each of
  /// Loops::extents the positions; `rows`, `block`.
  std::string parameters;
  bool joins = false;  // rows have reductions: threads that share one must be a cluster
};

/// Whether there is such a text: loops without segments.
bool can_run_on_gpu(const Loops& loops);
GpuSource emit_for_gpu(const Loops& loops, Lanes lanes);

/// What goes in front of the text: the headers of fused/support that loops on a GPU take, behind those of the device.
const std::string& gpu_source();
/// What NVRTC takes in front of that (support/cuda.h).
const std::string& cuda_source();

}  // namespace triage::fused
