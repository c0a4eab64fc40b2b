#pragma once
#include <ATen/core/Tensor.h>
#include <triage/backend.h>

#include <functional>
#include <vector>

/// What the tests of the fused backend run, and on what.
namespace triage::fused {

using Tensors = std::vector<at::Tensor>;
using Program = std::function<Tensors(const Tensors&)>;

/// Values in [-2, 2], no two neighbours alike.
at::Tensor data(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat);
/// The same; the rows 1, 6, ... hold a NaN, the rows 2, 9, ... an Inf.
at::Tensor with_bad_rows(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat);

/// The fused executable of `program`, its kernels compiled.
std::unique_ptr<Executable> compiled(const Program& program, const Tensors& examples);
Tensors run(const Executable& executable, const Tensors& inputs);
bool same_bits(const at::Tensor& a, const at::Tensor& b);

Tensors detect_repair(const Tensors& in);
Tensors softmax_repair(const Tensors& in);
Tensors zscore_clip(const Tensors& in);

}  // namespace triage::fused
