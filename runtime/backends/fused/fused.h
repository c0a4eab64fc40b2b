#pragma once
#include <triage/backend.h>

namespace triage {

/// The `fused` backend: what can be computed row by row becomes loops. They run as tapes (tape/tape.h) at once, and as kernels,
/// C++ that the host's compiler compiles, as soon as these are there (CompilerMode): the bits are the same. What is not
/// fused stays a call of ATen. On the CPU; elsewhere the whole graph is the interpreter's. With inputs that require grad it is the joint graph of
/// forward and backward computation whose halves are fused (aot_eager.h), masked rows masked. Where one loop is the whole graph,
/// an output may come in the memory of an input that the host donated (donation.h).
std::unique_ptr<Executable> compile_fused(const graph::Graph& graph, const std::vector<at::Tensor>& examples,
                                          CompilerMode compiler);

Backend fused_backend(CompilerMode compiler);

}  // namespace triage
