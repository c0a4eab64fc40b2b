#include "cuda_graph.h"

#include <stdexcept>

#ifdef TRIAGE_TEST_CUDA
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#endif

namespace triage::test {

#ifdef TRIAGE_TEST_CUDA

struct CudaGraph::Impl {
  at::cuda::CUDAGraph graph;
};

bool CudaGraph::available() { return true; }

CudaGraph::CudaGraph(const std::function<void()>& work) : impl_(std::make_unique<Impl>()) {
  c10::cuda::device_synchronize();
  const c10::cuda::CUDAStreamGuard on_stream(c10::cuda::getStreamFromPool());
  impl_->graph.capture_begin();
  try {
    work();
  } catch (...) {
    try {
      impl_->graph.capture_end();
    } catch (const std::exception&) {  // the capture is invalid: what `work` threw says why
    }
    throw;
  }
  impl_->graph.capture_end();
}

void CudaGraph::replay() { impl_->graph.replay(); }

#else

struct CudaGraph::Impl {};

bool CudaGraph::available() { return false; }
CudaGraph::CudaGraph(const std::function<void()>&) { throw std::logic_error("built against a LibTorch without CUDA"); }
void CudaGraph::replay() {}

#endif

CudaGraph::~CudaGraph() = default;

}  // namespace triage::test
