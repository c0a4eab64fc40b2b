#pragma once
#include "runtime/operators/table/row.h"

/// What rows say of several arguments together.
namespace triage::operators::relation {

using Wrong = std::optional<std::string>;

Wrong pieces(const OperatorCall& call);      // into how many tensors one is cut
Wrong broadcasts(const OperatorCall& call);  // what all tensors broadcast to is a number of elements
Wrong meshes(const OperatorCall& call);      // the same of a grid
Wrong indexes(const OperatorCall& call);  // `indices` are of dtypes that index, and not more than there are dimensions
Wrong vector_norm(const OperatorCall& call);  // no norm of matrices that needs their singular values
Wrong same_sizes(const OperatorCall& call);   // `self`, `target` and `weight`
Wrong few_reals(const OperatorCall& call);    // so many NaN can be compared one by one
Wrong groups(const OperatorCall& call);       // no more than there are channels
Wrong batch_norm(const OperatorCall& call);   // statistics are not written to
Wrong convolution(const OperatorCall& call);
Wrong transposed_convolution(const OperatorCall& call);
Wrong instance_norm(const OperatorCall& call);  // by statistics of the input, and none that are kept
Wrong shuffled_pixels(const OperatorCall& call);
Wrong recurrent(const OperatorCall& call);
Wrong recurrent_cell(const OperatorCall& call);
Wrong pooling(const OperatorCall& call);
Wrong constant_padding(const OperatorCall& call);
Wrong padding(const OperatorCall& call);
Wrong einsum(const OperatorCall& call);
Wrong adds_to_self(const OperatorCall& call);  // `beta` is not 0: memory that nobody wrote would be multiplied by it

/// No quotient of integers that its dtype does not hold: the processor stops a program that asks for it.
Wrong divides(const OperatorCall& call);

}  // namespace triage::operators::relation
