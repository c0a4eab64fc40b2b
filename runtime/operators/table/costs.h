#pragma once
#include <algorithm>

#include "runtime/operators/table/row.h"

/// Bounds that rows name. All count in doubles, which do not overflow. A size of 0 counts as 1: a tensor without
/// elements may still be long, and what is made of it along its other dimensions is then as long.
namespace triage::operators::cost {

/// --- elements and bytes of what is given ---
double elements(const at::Tensor& tensor);
/// Of all tensor arguments together.
double given_elements(const OperatorCall& call);
/// Of what the tensor arguments broadcast to (as if they did).
double broadcast_elements(const OperatorCall& call);
double most_elements(const OperatorCall& call);  // the larger of the two
double product(c10::ArrayRef<int64_t> sizes);
/// Bytes of one element: of the widest tensor argument, and of the dtype that is asked for; at least `least`.
double width(const OperatorCall& call, double least = 1);
/// Bytes of one element of what is computed: narrow floats in float32, whole numbers in 64 bits. A mask is no operand
/// where there is another.
double computed_width(const OperatorCall& call, double least = 4);
/// Of all tensor arguments together, each element as its own dtype has it, but at least 4.
double given_bytes(const OperatorCall& call);
double size_of(const at::Tensor& tensor, int64_t dim);

/// --- bytes that rows name ---
double nothing(const OperatorCall& call);    // views
double broadcast(const OperatorCall& call);  // one element for each that the arguments broadcast to
/// So many copies of what the arguments hold, or broadcast to, in the width that is computed in.
template <int copies, int least = 4>
double given(const OperatorCall& call) {
  return copies * (given_elements(call) + 1) * computed_width(call, least);
}
template <int copies, int least = 4>
double spread(const OperatorCall& call) {
  return copies * (broadcast_elements(call) + 1) * computed_width(call, least);
}
/// What is given may be copied first, and results may be of wider numbers.
inline double reduced(const OperatorCall& call) { return 1.5 * given<1>(call); }
/// The largest of each row, or `k` of them, and where they stand.
double placed(const OperatorCall& call);
/// Each channel of each sample has a mean, a deviation, a weight and a bias of its own.
double normed_channels(const OperatorCall& call);
/// So many copies of the arguments as they are: indices are no values.
template <int copies>
double moved(const OperatorCall& call) {
  return copies * (given_bytes(call) + 4);
}
/// What broadcasts, of which much is kept beside it.
template <int copies>
double joined(const OperatorCall& call) {
  return std::max(given<4>(call), spread<copies>(call));
}

double conversion(const OperatorCall& call);
double cosine_loss(const OperatorCall& call);
double masked_scatter(const OperatorCall& call);
double masked_scatter_work(const OperatorCall& call);
double rolled(const OperatorCall& call);
double rolled_work(const OperatorCall& call);
double repetition(const OperatorCall& call);
double repetition_work(const OperatorCall& call);
double diagonal_matrix(const OperatorCall& call);
double diagonal_work(const OperatorCall& call);
double quantiles(const OperatorCall& call);
double quantile_work(const OperatorCall& call);
double repeated_difference(const OperatorCall& call);
double repeated_difference_work(const OperatorCall& call);
double norm_work(const OperatorCall& call);
double quotient_work(const OperatorCall& call);
double hashed_work(const OperatorCall& call);
double indexed(const OperatorCall& call);
double indexed_work(const OperatorCall& call);
double positions(const OperatorCall& call);
double one_hot(const OperatorCall& call);
double one_hot_work(const OperatorCall& call);
double creation(const OperatorCall& call);
double creation_elements(const OperatorCall& call);
double multinomial(const OperatorCall& call);
double multinomial_work(const OperatorCall& call);
double matrix_product(const OperatorCall& call);
double matrix_product_work(const OperatorCall& call);
double einsum(const OperatorCall& call);
double einsum_work(const OperatorCall& call);
double distances(const OperatorCall& call);
double distance_work(const OperatorCall& call);
double cubic_work(const OperatorCall& call);
double solutions(const OperatorCall& call);
double solutions_work(const OperatorCall& call);
double selection_work(const OperatorCall& call);
double convolution(const OperatorCall& call);
double convolution_work(const OperatorCall& call);
double transposed_convolution(const OperatorCall& call);
double transposed_convolution_work(const OperatorCall& call);
double recurrent(const OperatorCall& call);
double recurrent_work(const OperatorCall& call);
double recurrent_cell(const OperatorCall& call);
double recurrent_cell_work(const OperatorCall& call);
double pooling(const OperatorCall& call);
double pooling_work(const OperatorCall& call);
double adaptive_pooling(const OperatorCall& call);
double adaptive_pooling_work(const OperatorCall& call);
double padding(const OperatorCall& call);
double padding_work(const OperatorCall& call);
double orthogonal(const OperatorCall& call);
double flags(const OperatorCall& call);
double flags_work(const OperatorCall& call);
double merging_work(const OperatorCall& call);
double replacing_work(const OperatorCall& call);

/// --- kinds of cost ---
constexpr Cost view{nothing, 0};
constexpr Cost of_elements(double (*bytes)(const OperatorCall& call), double nanoseconds) {
  return {bytes, nanoseconds, nullptr, true};
}
constexpr Cost of_given(double (*bytes)(const OperatorCall& call), double nanoseconds) {
  return {bytes, nanoseconds, given_elements, true};
}
constexpr Cost pointwise = of_elements(broadcast, 10);
constexpr Cost slow_pointwise = of_elements(broadcast, 30);  // functions that take many steps an element
constexpr Cost choosing = of_elements(spread<2>, 8);
constexpr Cost composed = of_elements(spread<2>, 20);  // made of several operators
constexpr Cost dividing = of_elements(spread<2>, 50);
constexpr Cost dividing_by_mode{spread<2>, 50, quotient_work, true};
constexpr Cost of_each = of_given(given<2>, 20);
constexpr Cost spreading = of_given(reduced, 35);  // a standard deviation, a norm
constexpr Cost copying = of_given(given<2>, 10);
constexpr Cost moving = of_given(moved<2>, 10);  // by positions
constexpr Cost reducing = of_given(reduced, 10);
constexpr Cost placing = of_given(placed, 10);
constexpr Cost selecting = of_given(placed, 60);
constexpr Cost sorting = of_given(given<6>, 300);

}  // namespace triage::operators::cost
