#include "runtime/operators/table/costs.h"
#include "runtime/operators/table/relations.h"
#include "runtime/operators/table/row.h"

/// One element of the result for each place, after broadcasting.
namespace triage::operators {
namespace {

using cost::composed;
using cost::pointwise;
using cost::slow_pointwise;

constexpr Row rows[] = {
    // of one tensor
    {"abs absolute neg negative square sgn", "_ .", "self: any", pointwise},
    {"positive", ".", "self: any", cost::view},
    {"sign ceil floor round trunc fix frac reciprocal sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan sinh "
     "cosh tanh sigmoid relu relu6 silu deg2rad rad2deg hardsigmoid hardswish selu",
     "_ .", "", pointwise},
    {"round", "_ decimals", "decimals: -38..38", pointwise},
    {"asin acos atan asinh acosh atanh arcsin arccos arctan arcsinh arccosh arctanh erf erfc erfinv lgamma digamma i0 "
     "sinc mish",
     "_ .", "", slow_pointwise},
    {"special_erf special_erfc special_expit special_exp2 special_expm1 special_log1p special_ndtr special_sinc "
     "special_entr special_digamma special_psi special_gammaln special_i0",
     ".",
     "",
     {cost::broadcast_eightfold, 100}},
    {"logit", "_ .", "eps: finite", pointwise},
    {"special_logit", ".", "eps: finite", pointwise},
    {"gelu", "_ .", "approximate: one:none|tanh", slow_pointwise},
    {"elu celu leaky_relu hardtanh threshold", "_ .", "", pointwise},
    {"hardshrink softshrink", ".", "", pointwise},
    {"softplus log_sigmoid", ".", "", composed},
    {"clamp clip", "_ . Tensor", "", pointwise},
    {"clamp_min clamp_max", "_ . Tensor", "", pointwise},
    {"nan_to_num", "_ .", "", composed},
    {"isnan isinf isfinite isposinf isneginf isreal signbit logical_not", ".", "self: any", composed},
    {"logical_not_", ".", "", pointwise},
    {"bitwise_not", "_ .", "self: whole", pointwise},
    {"angle", ".", "self: any", composed},
    {"prelu", ".", "self: single; weight: like:self", composed},
    {"glu", ".", "self: single", composed},

    // of two
    {"add sub subtract mul multiply", "_ Tensor Scalar", "self: any; other: any", pointwise},
    {"rsub", "Tensor Scalar", "", pointwise},
    {"div divide true_divide", "_ Tensor Scalar", "self: any; other: any", pointwise},
    {"div divide", "_ Tensor_mode Scalar_mode", "rounding_mode: one:floor|trunc", composed, relation::divides},
    {"floor_divide", "_ . Scalar", "", composed, relation::divides},
    {"floor_divide_", "Tensor", "", composed, relation::divides},
    {"remainder fmod", "_ Tensor Scalar", "", composed, relation::divides},
    {"remainder", "Scalar_Tensor", "", composed, relation::divides},
    {"pow", "Tensor_Tensor Tensor_Scalar Scalar", "", slow_pointwise},
    {"pow_", "Tensor Scalar", "", slow_pointwise},
    {"float_power", "Tensor_Tensor Tensor_Scalar Scalar", "", {cost::broadcast_eightfold, 100}},
    {"maximum minimum fmax fmin logaddexp logaddexp2", ".", "", slow_pointwise},
    {"max min", "other", "", pointwise},
    {"atan2 arctan2 hypot nextafter heaviside", "_ .", "", slow_pointwise},
    {"copysign", "_ Tensor Scalar", "", pointwise},
    {"xlogy", "_ Tensor Scalar_Self Scalar_Other", "", slow_pointwise},
    {"special_xlogy special_xlog1py", ". self_scalar other_scalar", "", slow_pointwise},
    {"ldexp", "Tensor", "", composed},
    {"eq ne not_equal", "_ Tensor Scalar", "self: any; other: any", pointwise},
    {"lt le gt ge less less_equal greater greater_equal", "_ Tensor Scalar", "", pointwise},
    {"logical_and logical_or logical_xor", "_ .", "", pointwise},
    {"bitwise_and bitwise_or bitwise_xor", "_ Tensor Scalar", "self: whole; other: whole", pointwise},
    {"bitwise_and bitwise_or bitwise_xor", "Scalar_Tensor", "other: whole", pointwise},
    {"bitwise_left_shift bitwise_right_shift", "_ Tensor Tensor_Scalar", "self: whole; other: whole", pointwise},
    {"bitwise_left_shift bitwise_right_shift", "Scalar_Tensor", "other: whole", pointwise},
    {"isclose", ".", "rtol: finite; atol: finite", composed},
    {"allclose", ".", "rtol: finite; atol: finite", composed},
    {"equal", ".", "*: any", composed},
    {"is_same_size is_floating_point is_complex is_signed", ".", "*: any", cost::view},
    {"complex", ".", "*: single", composed},

    // of three
    {"where", "self ScalarSelf ScalarOther Scalar", "condition: mask; self: any; other: any", composed},
    {"lerp", "_ Tensor Scalar", "*: float", slow_pointwise},
    {"addcmul addcdiv", "_ .", "", pointwise},
    {"masked_fill", "_ Scalar Tensor", "self: any; mask: mask; value: rank:0..0", composed},
};

}  // namespace

Rows elementwise_rows() { return rows; }

}  // namespace triage::operators
