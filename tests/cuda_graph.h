#pragma once
#include <functional>
#include <memory>

namespace triage::test {

/// What a GPU was given to do, kept as a CUDA graph (at::cuda::CUDAGraph). There is one in builds against a LibTorch
/// with CUDA.
class CudaGraph {
 public:
  static bool available();
  /// Runs `work` on a stream of its own, where nothing is computed but recorded. Throws if `work` waits for the device
  /// or copies from memory of the host. Tensors that `work` made must outlive the graph.
  explicit CudaGraph(const std::function<void()>& work);
  ~CudaGraph();
  /// Computes all of it again, in the same memory.
  void replay();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace triage::test
