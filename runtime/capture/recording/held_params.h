#pragma once
#include <ATen/core/Tensor.h>
#include <triage/error.h>

namespace triage::capture {

/// A boolean param by which a script went its way: the graph holds for calls in which it has that value.
struct HeldParam {
  size_t input;  // its number among the inputs of the graph
  bool truth;
  Source where;  // the line that decided first
};

/// The script goes its way by the truth of `tensor`. True where that is a boolean param, which the host knows before
/// each call: its value becomes a guard of the graph that is captured, or a way through the segments of a script that
/// is followed.
bool hold_param(const at::Tensor& tensor);

}  // namespace triage::capture
