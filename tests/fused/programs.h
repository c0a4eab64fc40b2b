#pragma once
#include <ATen/core/Tensor.h>
#include <triage/backend.h>

#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

/// What the tests of the fused backend run, and on what.
namespace triage::fused {

using Tensors = std::vector<at::Tensor>;
using Program = std::function<Tensors(const Tensors&)>;

inline constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();

/// Values in [-2, 2], no two neighbours alike.
at::Tensor data(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat);
/// The same; the rows 1, 6, ... hold a NaN, the rows 2, 9, ... an Inf.
at::Tensor with_bad_rows(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat);

/// The fused executable of `program`; on a GPU its loops are compiled.
std::unique_ptr<Executable> compiled(const Program& program, const Tensors& examples);
Tensors run(const Executable& executable, const Tensors& inputs, const CallContext& call = {});
/// The operators of ATen that a call goes to, and what it gives.
std::set<std::string> operators_called(const Executable& executable, const Tensors& inputs, Tensors* outputs = nullptr);
/// What a call gives, where no operator of ATen may compute anything: loops do. Copies of inputs are no computing.
Tensors run_in_loops(const Executable& executable, const Tensors& inputs);
/// How many of a program's operators loops compute, and how many are left to ATen.
std::pair<size_t, size_t> shares(const Program& program, const Tensors& examples);

bool same_bits(const at::Tensor& a, const at::Tensor& b);
/// The same dtype and sizes, and values as near as sums and functions like exp may be; `ulps`, of half precision.
bool same(const at::Tensor& a, const at::Tensor& b, double ulps = 0);

Tensors detect_repair(const Tensors& in);
Tensors softmax_repair(const Tensors& in);
Tensors zscore_clip(const Tensors& in);

}  // namespace triage::fused
