#include "runtime/operators/table/costs.h"
#include "runtime/operators/table/relations.h"
#include "runtime/operators/table/row.h"

/// Arithmetic.
namespace triage::operators {
namespace {

using cost::composed;
using cost::eightfold;
using cost::pointwise;
using cost::reducing;
using cost::slow_pointwise;
using cost::sorting;

constexpr Cost of_each{eightfold, 50};

// One element of the result for each place, after broadcasting.
constexpr Row elementwise[] = {
    // of one tensor
    {"abs absolute square sgn", "_ .", "elementwise", "self: any", pointwise},
    {"neg", "_ .", "elementwise number:negate masked:kept", "self: any", pointwise},
    {"negative", "_ .", "elementwise number:negate", "self: any", pointwise},
    {"positive", ".", "elementwise", "self: any", cost::view},
    {"sign ceil floor round trunc fix frac reciprocal sqrt rsqrt sin cos tan relu relu6 deg2rad rad2deg hardsigmoid "
     "hardswish selu",
     "_ .", "elementwise", "", pointwise},
    {"exp exp2 expm1 log log2 log10 log1p sinh cosh tanh sigmoid silu", "_ .", "elementwise rounds_by_position", "",
     pointwise},
    {"round", "_ decimals", "elementwise", "decimals: -38..38", pointwise},
    {"asin acos atan erf", "_ .", "elementwise rounds_by_position", "", slow_pointwise},
    {"asinh acosh atanh arcsin arccos arctan arcsinh arccosh arctanh erfc erfinv lgamma digamma i0 sinc mish", "_ .",
     "elementwise", "", slow_pointwise},
    {"special_erf special_erfc special_expit special_exp2 special_expm1 special_log1p special_ndtr special_sinc "
     "special_entr special_digamma special_psi special_gammaln special_i0",
     ".",
     "elementwise",
     "",
     {cost::broadcast_eightfold, 100}},
    {"logit", "_ .", "elementwise", "eps: finite", pointwise},
    {"special_logit", ".", "elementwise", "eps: finite", pointwise},
    {"gelu", "_ .", "elementwise rounds_by_position", "approximate: one:none|tanh", slow_pointwise},
    {"elu", "_ .", "elementwise checks_numbers rounds_by_position", "", pointwise},
    {"celu", "_ .", "elementwise", "", pointwise},
    {"leaky_relu hardtanh threshold", "_ .", "elementwise checks_numbers", "", pointwise},
    {"hardshrink softshrink", ".", "elementwise", "", pointwise},
    {"softplus", ".", "elementwise checks_numbers rounds_by_position", "", composed},
    {"log_sigmoid", ".", "elementwise", "", composed},
    {"clamp", "_ . Tensor", "elementwise checks_numbers", "", pointwise},
    {"clip", "_ . Tensor", "elementwise", "", pointwise},
    {"clamp_min", "_ . Tensor", "elementwise checks_numbers number:largest", "", pointwise},
    {"clamp_max", "_ . Tensor", "elementwise checks_numbers number:smallest", "", pointwise},
    {"nan_to_num", "_ .", "elementwise", "", composed},
    {"isnan isinf isfinite isposinf isneginf isreal", ".", "elementwise queries no_gradient", "self: any", composed},
    {"signbit logical_not", ".", "elementwise no_gradient", "self: any", composed},
    {"logical_not_", ".", "elementwise no_gradient", "", pointwise},
    {"bitwise_not", "_ .", "elementwise", "self: whole", pointwise},
    {"angle", ".", "elementwise", "self: any", composed},
    {"prelu", ".", "", "self: single; weight: like:self", composed},
    {"glu", ".", "", "self: single", composed},

    // of two
    {"add", "_ Tensor Scalar", "elementwise number:add masked:sum_of_two", "self: any; other: any", pointwise},
    {"sub", "_ Tensor Scalar", "elementwise number:subtract masked:sum_of_two", "self: any; other: any", pointwise},
    {"subtract", "_ Tensor Scalar", "elementwise number:subtract", "self: any; other: any", pointwise},
    {"mul", "_ Tensor Scalar", "elementwise number:multiply masked:factors", "self: any; other: any", pointwise},
    {"multiply", "_ Tensor Scalar", "elementwise number:multiply", "self: any; other: any", pointwise},
    {"rsub", "Tensor Scalar", "elementwise number:subtract_from", "", pointwise},
    {"div", "_ Tensor Scalar", "elementwise judges_whole number:divide masked:factors", "self: any; other: any",
     pointwise},
    {"divide", "_ Tensor Scalar", "elementwise judges_whole", "self: any; other: any", pointwise},
    {"true_divide", "_ Tensor Scalar", "elementwise", "self: any; other: any", pointwise},
    {"div", "_ Tensor_mode Scalar_mode", "elementwise judges_whole quotient", "rounding_mode: one:floor|trunc",
     composed, relation::divides},
    {"divide", "_ Tensor_mode Scalar_mode", "elementwise judges_whole quotient", "rounding_mode: one:floor|trunc",
     composed, relation::divides},
    {"floor_divide", "_ . Scalar", "elementwise judges_whole quotient number:floor_divide", "", composed,
     relation::divides},
    {"floor_divide_", "Tensor", "elementwise judges_whole quotient number:floor_divide", "", composed,
     relation::divides},
    {"remainder", "_ Tensor Scalar", "elementwise judges_whole modulus number:remainder", "", composed,
     relation::divides},
    {"fmod", "_ Tensor Scalar", "elementwise judges_whole modulus", "", composed, relation::divides},
    {"remainder", "Scalar_Tensor", "elementwise judges_whole modulus number:remainder", "", composed,
     relation::divides},
    {"pow", "Tensor_Tensor Tensor_Scalar Scalar", "elementwise judges_whole checks_numbers rounds_by_position", "",
     slow_pointwise},
    {"pow_", "Tensor Scalar", "elementwise judges_whole checks_numbers rounds_by_position", "", slow_pointwise},
    {"float_power", "Tensor_Tensor Tensor_Scalar Scalar", "elementwise", "", {cost::broadcast_eightfold, 100}},
    {"maximum", ".", "elementwise number:largest", "", slow_pointwise},
    {"minimum", ".", "elementwise number:smallest", "", slow_pointwise},
    {"fmax fmin logaddexp logaddexp2", ".", "elementwise", "", slow_pointwise},
    {"max", "other", "elementwise number:largest", "", pointwise},
    {"min", "other", "elementwise number:smallest", "", pointwise},
    {"atan2", "_ .", "elementwise rounds_by_position", "", slow_pointwise},
    {"arctan2 hypot nextafter heaviside", "_ .", "elementwise", "", slow_pointwise},
    {"copysign", "_ Tensor Scalar", "elementwise", "", pointwise},
    {"xlogy", "_ Tensor Scalar_Self Scalar_Other", "elementwise", "", slow_pointwise},
    {"special_xlogy special_xlog1py", ". self_scalar other_scalar", "elementwise", "", slow_pointwise},
    {"ldexp", "Tensor", "elementwise", "", composed},
    {"eq", "_ Tensor Scalar", "elementwise queries no_gradient number:equal", "self: any; other: any", pointwise},
    {"ne", "_ Tensor Scalar", "elementwise queries no_gradient number:not_equal", "self: any; other: any", pointwise},
    {"not_equal", "_ Tensor Scalar", "elementwise queries no_gradient", "self: any; other: any", pointwise},
    {"lt", "_ Tensor Scalar", "elementwise queries no_gradient number:less", "", pointwise},
    {"le", "_ Tensor Scalar", "elementwise queries no_gradient number:less_equal", "", pointwise},
    {"gt", "_ Tensor Scalar", "elementwise queries no_gradient number:greater", "", pointwise},
    {"ge", "_ Tensor Scalar", "elementwise queries no_gradient number:greater_equal", "", pointwise},
    {"less less_equal greater greater_equal", "_ Tensor Scalar", "elementwise queries no_gradient", "", pointwise},
    {"logical_and logical_or logical_xor", "_ .", "elementwise no_gradient", "", pointwise},
    {"bitwise_and", "_ Tensor Scalar", "elementwise number:bit_and", "self: whole; other: whole", pointwise},
    {"bitwise_or", "_ Tensor Scalar", "elementwise number:bit_or", "self: whole; other: whole", pointwise},
    {"bitwise_xor", "_ Tensor Scalar", "elementwise number:bit_xor", "self: whole; other: whole", pointwise},
    {"bitwise_and", "Scalar_Tensor", "elementwise number:bit_and", "other: whole", pointwise},
    {"bitwise_or", "Scalar_Tensor", "elementwise number:bit_or", "other: whole", pointwise},
    {"bitwise_xor", "Scalar_Tensor", "elementwise number:bit_xor", "other: whole", pointwise},
    {"bitwise_left_shift bitwise_right_shift", "_ Tensor Tensor_Scalar", "elementwise", "self: whole; other: whole",
     pointwise},
    {"bitwise_left_shift bitwise_right_shift", "Scalar_Tensor", "elementwise", "other: whole", pointwise},
    {"isclose", ".", "elementwise queries no_gradient", "rtol: finite; atol: finite", composed},
    {"allclose", ".", "queries", "rtol: finite; atol: finite", composed},
    {"equal", ".", "queries", "*: any", composed},
    {"is_same_size is_floating_point is_complex is_signed", ".", "queries reads_metadata", "*: any", cost::view},
    {"complex", ".", "elementwise", "*: single", composed},

    // of three
    {"where", "self ScalarSelf ScalarOther Scalar", "elementwise moves_records checks_numbers masked:where",
     "condition: mask; self: any; other: any", composed},
    {"lerp", "_ Tensor Scalar", "elementwise", "*: float", slow_pointwise},
    {"addcmul addcdiv", "_ .", "elementwise", "", pointwise},
    {"masked_fill", "_ Scalar Tensor", "elementwise moves_records checks_numbers masked:masked_fill",
     "self: any; mask: mask; value: rank:0..0", composed},
};

// What draws elements together, along dimensions or of the whole tensor, and what runs along one dimension.
constexpr Row reduction[] = {
    {"sum", ". dim_IntList", "sizes:reduced never_raises rounds_by_position masked:reduced", "", of_each},
    {"mean", ". dim", "sizes:reduced never_raises rounds_by_position", "", of_each},
    {"nansum nanmean", ".", "sizes:reduced never_raises", "", of_each},
    {"prod", ". dim_int", "sizes:reduced never_raises rounds_by_position", "", reducing},
    {"amax amin", ".", "sizes:reduced raises_by_sizes", "", reducing},
    {"max min", ". dim", "raises_by_sizes", "", reducing},
    {"aminmax", ".", "", "", reducing},
    {"argmax argmin", ".", "sizes:reduced raises_by_sizes no_gradient", "", reducing},
    {"all any", ". dim dims", "sizes:reduced queries never_raises no_gradient", "", reducing},
    {"std var", ". dim correction", "sizes:reduced never_raises rounds_by_position",
     "self: float; correction: -1000000..1000000", of_each},
    {"std_mean var_mean", ". dim correction", "", "self: float; correction: -1000000..1000000", of_each},
    {"logsumexp", ".", "sizes:reduced never_raises rounds_by_position", "", of_each},
    {"special_logsumexp", ".", "sizes:reduced never_raises", "", of_each},
    {"count_nonzero", ". dim_IntList", "sizes:reduced queries never_raises no_gradient", "", of_each},
    {"norm", "Scalar ScalarOpt_dim ScalarOpt_dtype ScalarOpt_dim_dtype", "rounds_by_position",
     "self: float; dtype: float", of_each},
    {"linalg_vector_norm", ".", "rounds_by_position", "self: float; dtype: float", of_each},
    {"linalg_norm", ".", "", "self: single; dtype: single", of_each, relation::vector_norm},
    {"linalg_matrix_norm", "str_ord", "", "self: single rank:2..16; ord: one:fro; dim: dims len:2..2; dtype: single",
     of_each},
    {"softmax log_softmax", "int", "sizes:like_first never_raises rounds_by_position", "dtype: float", of_each},
    {"special_softmax special_log_softmax", ".", "", "dtype: float", of_each},
    {"cumsum", "_ .", "sizes:like_first never_raises out_kernel masked:cumulated", "", reducing},
    {"cumprod", "_ .", "sizes:like_first never_raises", "", reducing},
    {"cummax cummin logcumsumexp", ".", "", "", of_each},
    {"sort", ". stable", "raises_by_sizes", "", sorting},
    {"argsort", ". stable", "no_gradient", "", sorting},
    {"msort", ".", "", "", sorting},
    {"topk", ".", "raises_by_sizes", "k: 0..1099511627776", sorting},
    {"kthvalue", ".", "", "k: 1..1099511627776; self: unexpanded", {eightfold, 0.5, cost::selection_work}},
    {"median nanmedian", ". dim", "", "self: unexpanded", sorting},
    {"quantile nanquantile", "scalar", "",
     "self: single filled; q: 0..1; interpolation: one:linear|lower|higher|midpoint|nearest", sorting},
    {"quantile nanquantile",
     ".",
     "",
     "self: single filled; q: like:self filled rank:0..1; interpolation: one:linear|lower|higher|midpoint|nearest",
     {cost::quantiles, 300, cost::quantile_work}},
    {"diff", ".", "view_or_copy", "n: 0..64", {cost::repeated_difference, 20}},
    {"trace", ".", "", "", reducing},
};

}  // namespace

Rows elementwise_rows() { return elementwise; }
Rows reduction_rows() { return reduction; }

}  // namespace triage::operators
