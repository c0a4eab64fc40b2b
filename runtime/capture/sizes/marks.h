#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace triage::capture {

/// What the user said of one dimension of a tensor: after torch._dynamo.mark_dynamic and mark_static.
struct DimensionMark {
  int64_t dim;
  bool dynamic;                                                // else static: graphs hold for this size only
  int64_t min = 0, max = std::numeric_limits<int64_t>::max();  // of a dynamic one: graphs hold within
};

/// Replaces what was said of that dimension. The mark lives as long as the tensor. Thread-safe.
void set_mark(const at::Tensor& tensor, DimensionMark mark);
std::vector<DimensionMark> marks_of(const at::Tensor& tensor);
/// No tensor of the process is marked any more.
void forget_marks();

}  // namespace triage::capture
