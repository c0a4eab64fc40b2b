// Activations and their derivatives, as ATen writes them down: in half precision it computes in float and rounds once. Some
// derivatives are left to ATen there, by versions that round in between.
#include <ATen/ATen.h>

#include <limits>

#include "runtime/backends/fused/lowering/lowering.h"

namespace triage::fused {
namespace {

#define TRIAGE_GATE "1 / (1 + exponential(-{1}))"
#define TRIAGE_TANH_OF "hyperbolic_tangent((decltype(value_of({0})))0.79788456080286535588 * "
#define TRIAGE_CUBIC(x) "(" x " + (decltype(value_of({0})))0.044715 * " x " * " x " * " x "))"

/// The formula gives Inf for it; where ATen leaves dense tensors to oneDNN, they get NaN. Whether a row holds one is not for the
/// backend to decide.
bool gelu_of_infinity_is_nan(at::ScalarType dtype) {
  return at::gelu(at::full({2}, std::numeric_limits<double>::infinity(), at::TensorOptions(dtype)))
      .isnan()
      .all()
      .item<bool>();
}

/// gelu(x), by erf or (approximate = 'tanh') by tanh.
bool gelu(Lowering& l) {
  const auto* kind = l.constant(1);
  if (!kind || !kind->isString()) return false;
  if (kind->toStringRef() == "tanh")
    return elementwise(l, {0}, is_real,
                       "(decltype(value_of({0})))0.5 * {0} * (1 + " TRIAGE_TANH_OF TRIAGE_CUBIC("{0}") ")", true);
#define TRIAGE_GELU \
  "{0} * (decltype(value_of({0})))0.5 * (1 + error_function({0} * (decltype(value_of({0})))0.70710678118654752440))"
  const auto dtype = l.common_dtype({0});
  if (dtype && is_real(*dtype) && gelu_of_infinity_is_nan(*dtype))
    return elementwise(l, {0}, is_real, "is_inf({0}) ? {0} - {0} : " TRIAGE_GELU, true);
  return elementwise(l, {0}, is_real, TRIAGE_GELU, true);
}

/// Whether ATen computes this derivative of values of `dtype` in float, and rounds once: some versions round in between, which
/// leaves other bits, and of small results few.
bool rounds_once(at::ScalarType dtype, at::Tensor (*derivative)(const at::Tensor& gradient, const at::Tensor& x)) {
  if (dtype == at::kFloat || dtype == at::kDouble) return true;
  if (!is_real(dtype)) return false;
  const at::Tensor x = at::linspace(-4, 4, 256).to(dtype), gradient = at::linspace(1, 2, 256).to(dtype);
  const at::Tensor exact = derivative(gradient.to(at::kFloat), x.to(at::kFloat)).to(dtype);
  return derivative(gradient, x).sub(exact).count_nonzero().item<int64_t>() <= 2;  // two ways to compute exp
}

bool smooth_backward(Lowering& l, at::Tensor (*derivative)(const at::Tensor&, const at::Tensor&), const char* code) {
  const auto dtype = l.common_dtype({0, 1});
  return dtype && rounds_once(*dtype, derivative) && elementwise(l, {0, 1}, is_real, code, true);
}

bool silu_backward(Lowering& l) {
  return smooth_backward(
      l, [](const at::Tensor& gradient, const at::Tensor& x) { return at::silu_backward(gradient, x); },
      "{0} * (" TRIAGE_GATE ") * (1 + {1} * (1 - " TRIAGE_GATE "))");
}

/// gelu_backward(gradient, x)
bool gelu_backward(Lowering& l) {
  const auto* kind = l.constant(2);
  if (!kind || !kind->isString()) return false;
#define TRIAGE_HYPERBOLIC TRIAGE_TANH_OF TRIAGE_CUBIC("{1}")
  if (kind->toStringRef() == "tanh")
    return smooth_backward(
        l, [](const at::Tensor& gradient, const at::Tensor& x) { return at::gelu_backward(gradient, x, "tanh"); },
        "{0} * ((decltype(value_of({0})))0.5 * (1 + " TRIAGE_HYPERBOLIC
        ") + (decltype(value_of({0})))0.5 * {1} * (1 - " TRIAGE_HYPERBOLIC " * " TRIAGE_HYPERBOLIC
        ") * ((decltype(value_of({0})))0.79788456080286535588 * (1 + 3 * (decltype(value_of({0})))0.044715 * "
        "({1} * {1}))))");
  return smooth_backward(
      l, [](const at::Tensor& gradient, const at::Tensor& x) { return at::gelu_backward(gradient, x); },
      "{0} * ((decltype(value_of({0})))0.5 * (1 + error_function({1} * "
      "(decltype(value_of({0})))0.70710678118654752440)) + "
      "{1} * exponential((decltype(value_of({0})))-0.5 * {1} * {1}) * "
      "(decltype(value_of({0})))0.39894228040143267794)");
}

/// hardswish_backward(gradient, x): versions differ in what NaN has, and the place where the line begins. Asked of as many as
/// vectors have, behind which some versions compute another thing once more.
bool hardswish_backward(Lowering& l) {
  const at::Tensor ends = at::tensor({-3.0f, std::numeric_limits<float>::quiet_NaN()}).repeat({64});
  const at::Tensor seen = at::hardswish_backward(at::ones_like(ends), ends);
  const bool begins = seen[0].item<float>() == 0.0f, keeps_nan = seen[1].isnan().item<bool>();
#define TRIAGE_LINE "{0} * ({1} / 3 + (decltype(value_of({0})))0.5)"
  const char* code = keeps_nan ? (begins ? "{1} >= 3 ? {0} : ({1} <= -3 ? (decltype(value_of({0})))0 : " TRIAGE_LINE ")"
                                         : "{1} >= 3 ? {0} : ({1} < -3 ? (decltype(value_of({0})))0 : " TRIAGE_LINE ")")
                               : (begins ? "{1} < 3 ? ({1} <= -3 ? (decltype(value_of({0})))0 : " TRIAGE_LINE ") : {0}"
                                         : "{1} < 3 ? ({1} < -3 ? (decltype(value_of({0})))0 : " TRIAGE_LINE ") : {0}");
  return elementwise(l, {0, 1}, is_real, code);
}

/// leaky_relu_backward(gradient, x, slope): of the result instead of x it is the same formula.
bool leaky_relu_backward(Lowering& l) { return elementwise(l, {0, 1, 2}, is_real, "{1} > 0 ? {0} : {0} * {2}"); }

/// elu_backward(gradient, alpha, scale, input_scale, is_result, x). NaN has the gradient NaN, as in ATen's vectors; what is left
/// over behind them has that of positive numbers there.
bool elu_backward(Lowering& l) {
  const auto of_result = l.flag(4);
  if (!of_result) return false;
  return *of_result ? elementwise(l, {0, 1, 2, 3, 5}, is_real, "{4} > 0 ? {0} * {2} : {0} * {3} * ({4} + {1} * {2})")
                    : elementwise(l, {0, 1, 2, 3, 5}, is_real,
                                  "{4} > 0 ? {0} * {2} : {0} * {3} * ({1} * {2}) * exponential({4} * {3})", true);
}

}  // namespace

const LowerTable& activations() {
  static const LowerTable table = {
      {"aten::hardtanh", clamp},
      {"aten::relu6",
       [](Lowering& l) {
         return elementwise(l, {0}, is_number,
                            "at_most(at_least({0}, (decltype(value_of({0})))0), (decltype(value_of({0})))6)");
       }},
      {"aten::hardswish",
       [](Lowering& l) {
         return elementwise(
             l, {0}, is_real,
             "{0} * at_most(at_least({0} + 3, (decltype(value_of({0})))0), (decltype(value_of({0})))6) / 6");
       }},
      {"aten::hardsigmoid",
       [](Lowering& l) {
         return elementwise(l, {0}, is_real,
                            "at_most(at_least({0} + 3, (decltype(value_of({0})))0), (decltype(value_of({0})))6) / 6");
       }},
      {"aten::threshold",
       [](Lowering& l) {
         return elementwise(l, {0, 1, 2}, is_number, "{0} <= {1} ? {2} : {0}");
       }},
      {"aten::leaky_relu",
       [](Lowering& l) {
         return elementwise(l, {0, 1}, is_real, "{0} > 0 ? {0} : {0} * {1}");
       }},
      {"aten::silu", [](Lowering& l) { return elementwise(l, {0}, is_real, "{0} / (1 + exponential(-{0}))", true); }},
      {"aten::elu",
       [](Lowering& l) {
         return elementwise(l, {0, 1, 2, 3}, is_real,
                            "{0} <= 0 ? exponential_minus_one({0} * {3}) * ({1} * {2}) : {0} * {2}", true);
       }},
      {"aten::softplus",
       [](Lowering& l) {
         return elementwise(l, {0, 1, 2}, is_real,
                            "{0} * {1} > {2} ? {0} : logarithm_of_one_plus(exponential({0} * {1})) / {1}", true);
       }},
      {"aten::gelu", gelu},
      {"aten::hardtanh_backward",
       [](Lowering& l) {
         return elementwise(l, {0, 1, 2, 3}, is_real, "({1} <= {2}) | ({1} >= {3}) ? 0 : {0}");
       }},
      {"aten::hardsigmoid_backward",
       [](Lowering& l) {
         return elementwise(l, {0, 1}, is_real, "({1} > -3) & ({1} < 3) ? {0} * (1.0f / 6.0f) : 0");
       }},
      {"aten::leaky_relu_backward", leaky_relu_backward},
      {"aten::silu_backward", silu_backward},
      {"aten::hardswish_backward", hardswish_backward},
      {"aten::elu_backward", elu_backward},
      {"aten::softplus_backward",
       [](Lowering& l) {
         return elementwise(l, {0, 1, 2, 3}, is_real,
                            "{1} * {2} > {3} ? {0} : {0} * exponential({1} * {2}) / (exponential({1} * {2}) + 1)",
                            true);
       }},
      {"aten::gelu_backward", gelu_backward},
  };
  return table;
}

}  // namespace triage::fused
