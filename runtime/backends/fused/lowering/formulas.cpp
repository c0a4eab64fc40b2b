// Operators that are a formula of their arguments (formula.h), and the dtypes for which they are. Activations and their
// derivatives are as ATen writes them down.
#include "runtime/backends/fused/lowering/lowering.h"

namespace triage::fused {

const std::vector<FormulaRow>& formula_operators() {
  using D = Dtypes;
  static const std::vector<FormulaRow> rows = {
      // --- arithmetic
      {"aten::mul.Tensor", D::boolean, "a & b"},
      {"aten::mul.Tensor", D::number, "a * b"},
      {"aten::mul.Scalar", D::number, "a * b"},
      {"aten::div.Tensor", D::real, "a / b"},
      {"aten::div.Scalar", D::real, "a / b"},
      {"aten::square", D::number, "a * a"},
      {"aten::neg", D::number, "-a"},
      {"aten::abs", D::number, "abs(a)"},
      {"aten::sign", D::real, "sign(a)"},
      {"aten::sgn", D::real, "sign(a)"},
      {"aten::maximum", D::number, "maximum(a, b)"},
      {"aten::minimum", D::number, "minimum(a, b)"},
      {"aten::clamp_min", D::number, "at_least(a, b)"},
      {"aten::clamp_max", D::number, "at_most(a, b)"},
      {"aten::floor", D::real, "floor(a)"},
      {"aten::floor", D::integer, "a"},
      {"aten::ceil", D::real, "ceil(a)"},
      {"aten::ceil", D::integer, "a"},
      {"aten::trunc", D::real, "trunc(a)"},
      {"aten::trunc", D::integer, "a"},
      {"aten::fix", D::real, "trunc(a)"},
      {"aten::fix", D::integer, "a"},
      {"aten::round", D::real, "round(a)"},
      {"aten::round", D::integer, "a"},
      {"aten::frac", D::real, "a - trunc(a)"},
      // --- functions
      {"aten::reciprocal", D::real, "reciprocal(a)"},
      {"aten::sqrt", D::real, "sqrt(a)"},
      {"aten::rsqrt", D::real, "reciprocal(sqrt(a))"},
      {"aten::exp", D::real, "exp(a)"},
      {"aten::log", D::real, "log(a)"},
      {"aten::expm1", D::real, "expm1(a)"},
      {"aten::log1p", D::real, "log1p(a)"},
      {"aten::exp2", D::real, "exp2(a)"},
      {"aten::log2", D::real, "log2(a)"},
      {"aten::log10", D::real, "log10(a)"},
      {"aten::sinh", D::real, "sinh(a)"},
      {"aten::cosh", D::real, "cosh(a)"},
      {"aten::asin", D::real, "asin(a)"},
      {"aten::acos", D::real, "acos(a)"},
      {"aten::atan", D::real, "atan(a)"},
      {"aten::atan2", D::single_or_half, "atan2(a, b)"},
      {"aten::erf", D::real, "erf(a)"},
      {"aten::tanh", D::real, "tanh(a)"},
      {"aten::sigmoid", D::real, "sigmoid(a)"},
      // --- conditions
      {"aten::isnan", D::any, "is_nan(a)"},
      {"aten::isinf", D::any, "is_inf(a)"},
      {"aten::isfinite", D::any, "is_finite(a)"},
      {"aten::logical_not", D::boolean, "!a"},
      {"aten::logical_not", D::number, "a == 0"},
      {"aten::eq.Tensor", D::any, "a == b"},
      {"aten::eq.Scalar", D::any, "a == b"},
      {"aten::ne.Tensor", D::any, "a != b"},
      {"aten::ne.Scalar", D::any, "a != b"},
      {"aten::lt.Tensor", D::any, "a < b"},
      {"aten::lt.Scalar", D::any, "a < b"},
      {"aten::le.Tensor", D::any, "a <= b"},
      {"aten::le.Scalar", D::any, "a <= b"},
      {"aten::gt.Tensor", D::any, "a > b"},
      {"aten::gt.Scalar", D::any, "a > b"},
      {"aten::ge.Tensor", D::any, "a >= b"},
      {"aten::ge.Scalar", D::any, "a >= b"},
      {"aten::logical_and", D::boolean, "a & b"},
      {"aten::logical_or", D::boolean, "a | b"},
      {"aten::logical_xor", D::boolean, "a != b"},
      {"aten::bitwise_and.Tensor", D::whole, "a & b"},
      {"aten::bitwise_or.Tensor", D::whole, "a | b"},
      {"aten::bitwise_xor.Tensor", D::whole, "a ^ b"},
      {"aten::bitwise_not", D::boolean, "!a"},
      // --- activations
      {"aten::relu", D::number, "at_least(a, 0)"},
      {"aten::relu6", D::number, "at_most(at_least(a, 0), 6)"},
      {"aten::hardswish", D::real, "a * at_most(at_least(a + 3, 0), 6) / 6"},
      {"aten::hardsigmoid", D::real, "at_most(at_least(a + 3, 0), 6) / 6"},
      {"aten::threshold", D::number, "a <= b ? c : a"},
      {"aten::leaky_relu", D::real, "a > 0 ? a : a * b"},
      {"aten::silu", D::real, "a / (1 + exp(-a))"},
      {"aten::elu", D::real, "a <= 0 ? expm1(a * d) * (b * c) : a * c"},
      {"aten::softplus", D::real, "a * b > c ? a : log1p(exp(a * b)) / b"},
      // --- derivatives: of the gradient `a`, and of the argument or the result of the function
      {"aten::tanh_backward", D::real, "a * (1 - b * b)"},
      {"aten::sigmoid_backward", D::real, "a * (1 - b) * b"},
      {"aten::threshold_backward", D::number, "b <= c ? 0 : a"},
      {"aten::hardtanh_backward", D::real, "(b <= c) | (b >= d) ? 0 : a"},
      {"aten::hardsigmoid_backward", D::real, "(b > -3) & (b < 3) ? a * 0.16666667163372040 : 0"},  // a float of ATen's
      {"aten::leaky_relu_backward", D::real, "b > 0 ? a : a * c"},
      {"aten::softplus_backward", D::real, "b * c > d ? a : a * exp(b * c) / (exp(b * c) + 1)"},
  };
  return rows;
}

}  // namespace triage::fused
