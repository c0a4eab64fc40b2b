#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

/// A tensor that is written to in place keeps its order in memory. The graph has no writes: it has operators that
/// return their result, and these choose the order of its dimensions themselves (`cumsum` of transposed data is
/// row-major). What follows may depend on that order: `rand_like` draws for elements as they lie in memory, and views
/// and later writes follow strides.
namespace triage::graph {

/// `triage::restride(Tensor self, Tensor like) -> Tensor`: the elements of `self` in memory of their own, with the
/// strides of `like` (but for gaps).
inline constexpr const char* kRestride = "triage::restride";
c10::OperatorHandle restride();

/// What it is in plain ATen, whatever strides come: dense results only.
at::Tensor restride_in_aten(const at::Tensor& self, const at::Tensor& like);

/// Whether the operator, which stands for a write to its first argument, gives a dense one's strides to its result.
bool keeps_order(const c10::OperatorHandle& op);

}  // namespace triage::graph
