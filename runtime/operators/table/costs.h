#pragma once
#include "runtime/operators/table/row.h"

/// Bounds that rows name. All count in doubles, which do not overflow. A size of 0 counts as 1: a tensor without
/// elements may still be long, and what is made of it along its other dimensions is then as long.
namespace triage::operators::cost {

/// --- elements and bytes of what is given ---
double elements(const at::Tensor& tensor);
/// Of all tensor arguments together.
double given_elements(const Call& call);
/// Of what the tensor arguments broadcast to (as if they did).
double broadcast_elements(const Call& call);
double product(c10::ArrayRef<int64_t> sizes);
/// Bytes of one element: of the widest tensor argument, and of the dtype that is asked for; at least `least`.
double width(const Call& call, double least = 1);
double size_of(const at::Tensor& tensor, int64_t dim);

/// --- bytes that rows name ---
double nothing(const Call& call);      // views
double broadcast(const Call& call);    // one element for each that the arguments broadcast to
double twice_given(const Call& call);  // as much as the arguments hold, with a workspace
double eightfold(const Call& call);    // operators that are made of several
double broadcast_eightfold(const Call& call);

double conversion(const Call& call);
double rolled(const Call& call);
double rolled_work(const Call& call);
double repetition(const Call& call);
double repetition_work(const Call& call);
double diagonal_matrix(const Call& call);
double diagonal_work(const Call& call);
double quantiles(const Call& call);
double quantile_work(const Call& call);
double repeated_difference(const Call& call);
double indexed(const Call& call);
double indexed_work(const Call& call);
double positions(const Call& call);
double one_hot(const Call& call);
double one_hot_work(const Call& call);
double creation(const Call& call);
double creation_elements(const Call& call);
double multinomial(const Call& call);
double multinomial_work(const Call& call);
double matrix_product(const Call& call);
double matrix_product_work(const Call& call);
double einsum(const Call& call);
double einsum_work(const Call& call);
double distances(const Call& call);
double distance_work(const Call& call);
double cubic_work(const Call& call);
double solutions(const Call& call);
double solutions_work(const Call& call);
double selection_work(const Call& call);
double convolution(const Call& call);
double convolution_work(const Call& call);
double transposed_convolution(const Call& call);
double transposed_convolution_work(const Call& call);
double recurrent(const Call& call);
double recurrent_work(const Call& call);
double recurrent_cell(const Call& call);
double recurrent_cell_work(const Call& call);
double pooling(const Call& call);
double pooling_work(const Call& call);
double adaptive_pooling(const Call& call);
double adaptive_pooling_work(const Call& call);
double padding(const Call& call);
double padding_work(const Call& call);
double orthogonal(const Call& call);
double loss_of_pairs(const Call& call);
double flags(const Call& call);
double flags_work(const Call& call);
double merging_work(const Call& call);
double replacing_work(const Call& call);

/// --- kinds of cost ---
constexpr Cost view{nothing, 0};
constexpr Cost pointwise{broadcast, 5};
constexpr Cost slow_pointwise{broadcast, 100};  // functions that take many steps an element
constexpr Cost composed{broadcast_eightfold, 50};
constexpr Cost of_each{eightfold, 50};
constexpr Cost copying{twice_given, 10};
constexpr Cost reducing{twice_given, 10};
constexpr Cost sorting{eightfold, 300};

}  // namespace triage::operators::cost
