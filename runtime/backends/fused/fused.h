#pragma once
#include <triage/backend.h>

namespace triage {

/// The `fused` backend: what can be computed row by row becomes loops, which run as tapes (tape/tape.h). What is not
/// fused stays a call of ATen. On a GPU loops are kernels that NVRTC compiles (gpu/gpu_group.h); on other devices the
/// whole graph is the interpreter's. With inputs that require grad it is the joint graph of forward and backward
/// computation whose halves are fused (aot_eager.h), masked rows masked. Where one loop is the whole graph, an output
/// may come in the memory of an input that the host donated (donation.h).
std::unique_ptr<Executable> compile_fused(const graph::Graph& graph, const std::vector<at::Tensor>& examples);

}  // namespace triage
