#pragma once
#include "runtime/operators/table/row.h"

/// What rows say of several arguments together.
namespace triage::operators::relation {

using Wrong = std::optional<std::string>;

Wrong pieces(const Call& call);       // into how many tensors one is cut
Wrong broadcasts(const Call& call);   // what all tensors broadcast to is a number of elements
Wrong meshes(const Call& call);       // the same of a grid
Wrong indexes(const Call& call);      // `indices` are of dtypes that index, and not more than there are dimensions
Wrong vector_norm(const Call& call);  // no norm of matrices that needs their singular values
Wrong same_sizes(const Call& call);   // `self`, `target` and `weight`
Wrong few_reals(const Call& call);    // so many NaN can be compared one by one
Wrong groups(const Call& call);       // no more than there are channels
Wrong batch_norm(const Call& call);   // statistics are not written to
Wrong convolution(const Call& call);
Wrong transposed_convolution(const Call& call);
Wrong instance_norm(const Call& call);  // by statistics of the input, and none that are kept
Wrong shuffled_pixels(const Call& call);
Wrong recurrent(const Call& call);
Wrong recurrent_cell(const Call& call);
Wrong pooling(const Call& call);
Wrong constant_padding(const Call& call);
Wrong padding(const Call& call);
Wrong einsum(const Call& call);
Wrong adds_to_self(const Call& call);  // `beta` is not 0: memory that nobody wrote would be multiplied by it

/// No quotient of integers that its dtype does not hold: the processor stops a program that asks for it.
Wrong divides(const Call& call);

}  // namespace triage::operators::relation
