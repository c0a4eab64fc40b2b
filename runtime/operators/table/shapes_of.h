#pragma once
#include "runtime/operators/call.h"

#include <optional>
#include <vector>

/// Sizes that layers give, for relations and costs.
namespace triage::operators {

/// An argument with one number for each spatial dimension; `otherwise` where it is empty or not there.
std::vector<int64_t> filled_up(const OperatorCall& call, ArgumentName name, int64_t otherwise);
/// Spatial sizes of the result: of a convolution, of a transposed one, of a pooling.
std::vector<int64_t> convolved(const OperatorCall& call);
std::vector<int64_t> unconvolved(const OperatorCall& call);
std::vector<int64_t> pooled(const OperatorCall& call);
/// Sizes of `self` with `pad`.
std::vector<int64_t> padded(const OperatorCall& call);

/// Of an equation that fits its tensors: how many elements the result has, the product of all sizes there are, and how
/// many products of matrices it may come to. A size of 0 counts as 1.
struct Einsum {
  double result = 1;
  double all = 1;
  double batch = 1;
};
std::optional<Einsum> read_einsum(const OperatorCall& call);

}  // namespace triage::operators
