#pragma once
#include <algorithm>

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
double most_elements(const Call& call);  // the larger of the two
double product(c10::ArrayRef<int64_t> sizes);
/// Bytes of one element: of the widest tensor argument, and of the dtype that is asked for; at least `least`.
double width(const Call& call, double least = 1);
/// Bytes of one element of what is computed: narrow floats in float32, whole numbers in 64 bits. A mask is no operand
/// where there is another.
double computed_width(const Call& call, double least = 4);
/// Of all tensor arguments together, each element as its own dtype has it, but at least 4.
double given_bytes(const Call& call);
double size_of(const at::Tensor& tensor, int64_t dim);

/// --- bytes that rows name ---
double nothing(const Call& call);    // views
double broadcast(const Call& call);  // one element for each that the arguments broadcast to
/// So many copies of what the arguments hold, or broadcast to, in the width that is computed in.
template <int copies, int least = 4>
double given(const Call& call) {
  return copies * (given_elements(call) + 1) * computed_width(call, least);
}
template <int copies, int least = 4>
double spread(const Call& call) {
  return copies * (broadcast_elements(call) + 1) * computed_width(call, least);
}
/// What is given may be copied first, and results may be of wider numbers.
inline double reduced(const Call& call) { return 1.5 * given<1>(call); }
/// The largest of each row, or `k` of them, and where they stand.
double placed(const Call& call);
/// Each channel of each sample has a mean, a deviation, a weight and a bias of its own.
double normed_channels(const Call& call);
/// So many copies of the arguments as they are: indices are no values.
template <int copies>
double moved(const Call& call) {
  return copies * (given_bytes(call) + 4);
}
/// What broadcasts, of which much is kept beside it.
template <int copies>
double joined(const Call& call) {
  return std::max(given<4>(call), spread<copies>(call));
}

double conversion(const Call& call);
double cosine_loss(const Call& call);
double masked_scatter(const Call& call);
double masked_scatter_work(const Call& call);
double rolled(const Call& call);
double rolled_work(const Call& call);
double repetition(const Call& call);
double repetition_work(const Call& call);
double diagonal_matrix(const Call& call);
double diagonal_work(const Call& call);
double quantiles(const Call& call);
double quantile_work(const Call& call);
double repeated_difference(const Call& call);
double repeated_difference_work(const Call& call);
double norm_work(const Call& call);
double quotient_work(const Call& call);
double hashed_work(const Call& call);
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
double flags(const Call& call);
double flags_work(const Call& call);
double merging_work(const Call& call);
double replacing_work(const Call& call);

/// --- kinds of cost ---
constexpr Cost view{nothing, 0};
constexpr Cost of_elements(double (*bytes)(const Call& call), double nanoseconds) {
  return {bytes, nanoseconds, nullptr, true};
}
constexpr Cost of_given(double (*bytes)(const Call& call), double nanoseconds) {
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
