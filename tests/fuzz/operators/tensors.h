#pragma once
#include "tests/fuzz/operators/random.h"

#include <ATen/core/Tensor.h>

#include <vector>

/// Tensors as policies can make them: every dtype, layout in memory and kind of value.
namespace triage::fuzz {

using Sizes = std::vector<int64_t>;

enum class Values : uint8_t {
  ordinary,  // small numbers of both signs
  small,     // 0 .. 3
  special,   // NaN, infinities, denormals, extremes of integers
  positive,
  unit,      // in [0, 1)
  sorted,    // ascending
  definite,  // a well-conditioned symmetric matrix
  index,     // 0 .. limit - 1
  stray_index
};

struct TensorPlan {
  Sizes sizes;
  at::ScalarType dtype = at::kFloat;
  Values values = Values::ordinary;
  int64_t limit = 1;   // of indices
  bool plain = false;  // contiguous
  bool large = false;  // of up to some million elements, whose values repeat
};

at::Tensor make_tensor(const TensorPlan& plan, Random& random);

/// A view of `tensor`, or the same tensor: what aliases an argument.
at::Tensor make_alias(const at::Tensor& tensor, Random& random);

at::ScalarType any_dtype(Random& random);

/// How many elements tensors have: some thousand at most; or (vast) dimensions of 0 beside such of thousands, where
/// what is large is one element that is expanded; or (large) up to some million, and no wild arguments beside them; or
/// (large_plain) such that are contiguous and of one dtype.
enum class Reach : uint8_t { ordinary, vast, large, large_plain };
inline bool is_large(Reach reach) { return reach == Reach::large || reach == Reach::large_plain; }

/// Sizes of rank 0 to 4, sometimes with a 0.
Sizes any_sizes(Random& random, Reach reach = Reach::ordinary);
int64_t any_size(Random& random, Reach reach = Reach::ordinary);

}  // namespace triage::fuzz
