// Activations and derivatives whose formula depends on their arguments or on what this LibTorch does. In half precision
// it computes in float and rounds once; some derivatives are left to ATen there, by versions that round in between.
#include <ATen/ATen.h>

#include <limits>
#include <vector>

#include "runtime/backends/fused/lowering/lowering.h"

namespace triage::fused {
namespace {

#define TRIAGE_TANH_OF(x) "tanh(0.79788456080286535588 * (" x " + 0.044715 * " x " * " x " * " x "))"
#define TRIAGE_GELU "a * 0.5 * (1 + erf(a * 0.70710678118654752440))"

/// The formula gives Inf for it; where ATen leaves dense tensors to oneDNN, they get NaN. Whether a row holds one is
/// not for the backend to decide.
bool gelu_of_infinity_is_nan(at::ScalarType dtype) {
  return at::gelu(at::full({2}, std::numeric_limits<double>::infinity(), at::TensorOptions(dtype)))
      .isnan()
      .all()
      .item<bool>();
}

/// A function of x, or of what comes in from behind (`gradient`) and x.
using OfTwo = at::Tensor (*)(const at::Tensor& gradient, const at::Tensor& x);

/// Whether ATen computes this function of values of `dtype` in float, and rounds once: some versions round in between,
/// which leaves other bits, and of small results few.
bool rounds_once(at::ScalarType dtype, OfTwo function) {
  if (dtype == at::kFloat || dtype == at::kDouble) return true;
  if (!at::isFloatingType(dtype)) return false;
  const at::Tensor x = at::linspace(-4, 4, 256).to(dtype), gradient = at::linspace(1, 2, 256).to(dtype);
  try {
    const at::Tensor exact = function(gradient.to(at::kFloat), x.to(at::kFloat)).to(dtype);
    return function(gradient, x).sub(exact).count_nonzero().item<int64_t>() <= 2;  // two ways to compute exp
  } catch (const c10::Error&) {
    return false;  // this LibTorch has none for the dtype
  }
}

/// `arguments`: gradient, where there is one, and x.
bool smooth(Lowering& l, const std::vector<size_t>& arguments, OfTwo function, const char* code) {
  const auto dtype = l.common_dtype(arguments);
  return dtype && rounds_once(*dtype, function) && elementwise(l, Dtypes::real, code);
}

bool silu(Lowering& l) {
  return smooth(
      l, {0}, [](const at::Tensor&, const at::Tensor& x) { return at::silu(x); }, "a / (1 + exp(-a))");
}

/// gelu(x), by erf or (approximate = 'tanh') by tanh.
bool gelu(Lowering& l) {
  const auto* kind = l.constant(1);
  if (!kind || !kind->isString()) return false;
  if (kind->toStringRef() == "tanh")
    return smooth(
        l, {0}, [](const at::Tensor&, const at::Tensor& x) { return at::gelu(x, "tanh"); },
        "0.5 * a * (1 + " TRIAGE_TANH_OF("a") ")");
  const auto dtype = l.common_dtype({0});
  const bool is_nan = dtype && at::isFloatingType(*dtype) && gelu_of_infinity_is_nan(*dtype);
  return smooth(
      l, {0}, [](const at::Tensor&, const at::Tensor& x) { return at::gelu(x); },
      is_nan ? "is_inf(a) ? a - a : " TRIAGE_GELU : TRIAGE_GELU);
}

/// elu(x, alpha, scale, input_scale). Versions differ in whether they compute exp(x) - 1 in two steps: of small
/// numbers, and of -0, these give others.
bool elu(Lowering& l) {
  static const bool in_two_steps =
      at::elu(at::full({64}, -1e-3)).ne(at::expm1(at::full({64}, -1e-3))).all().item<bool>();
  return smooth(
      l, {0}, [](const at::Tensor&, const at::Tensor& x) { return at::elu(x); },
      in_two_steps ? "a <= 0 ? (exp(a * d) - 1) * (b * c) : a * c" : "a <= 0 ? expm1(a * d) * (b * c) : a * c");
}

bool silu_backward(Lowering& l) {
  return smooth(
      l, {0, 1}, [](const at::Tensor& gradient, const at::Tensor& x) { return at::silu_backward(gradient, x); },
      "a * reciprocal(1 + exp(-b)) * (1 + b * (1 - reciprocal(1 + exp(-b))))");
}

/// gelu_backward(gradient, x)
bool gelu_backward(Lowering& l) {
  const auto* kind = l.constant(2);
  if (!kind || !kind->isString()) return false;
  if (kind->toStringRef() == "tanh")
    return smooth(
        l, {0, 1},
        [](const at::Tensor& gradient, const at::Tensor& x) { return at::gelu_backward(gradient, x, "tanh"); },
        "a * (0.5 * (1 + " TRIAGE_TANH_OF("b") ") + 0.5 * b * (1 - " TRIAGE_TANH_OF("b") " * " TRIAGE_TANH_OF(
            "b") ") * (0.79788456080286535588 * (1 + 3 * 0.044715 * (b * b))))");
  return smooth(
      l, {0, 1}, [](const at::Tensor& gradient, const at::Tensor& x) { return at::gelu_backward(gradient, x); },
      "a * (0.5 * (1 + erf(b * 0.70710678118654752440)) + b * exp(-0.5 * b * b) * 0.39894228040143267794)");
}

/// hardswish_backward(gradient, x): versions differ in what NaN has, and the place where the line begins. Asked of as
/// many as vectors have, behind which some versions compute another thing once more.
bool hardswish_backward(Lowering& l) {
  const at::Tensor ends = at::tensor({-3.0f, std::numeric_limits<float>::quiet_NaN()}).repeat({64});
  const at::Tensor seen = at::hardswish_backward(at::ones_like(ends), ends);
  const bool begins = seen[0].item<float>() == 0.0f, keeps_nan = seen[1].isnan().item<bool>();
  return elementwise(l, Dtypes::real,
                     keeps_nan ? (begins ? "b >= 3 ? a : (b <= -3 ? 0 : a * (b / 3 + 0.5))"
                                         : "b >= 3 ? a : (b < -3 ? 0 : a * (b / 3 + 0.5))")
                               : (begins ? "b < 3 ? (b <= -3 ? 0 : a * (b / 3 + 0.5)) : a"
                                         : "b < 3 ? (b < -3 ? 0 : a * (b / 3 + 0.5)) : a"));
}

/// elu_backward(gradient, alpha, scale, input_scale, is_result, x). NaN has the gradient NaN, as in ATen's vectors;
/// what is left over behind them has that of positive numbers there.
bool elu_backward(Lowering& l) {
  const auto of_result = l.flag(4);
  return of_result && elementwise(l, Dtypes::real,
                                  *of_result ? "f > 0 ? a * c : a * d * (f + b * c)"
                                             : "f > 0 ? a * c : a * d * (b * c) * exp(f * d)");
}

}  // namespace

const LowerTable& activations() {
  static const auto& table = *new LowerTable{
      {"aten::hardtanh", clamp},
      {"aten::silu", silu},
      {"aten::gelu", gelu},
      {"aten::elu", elu},
      {"aten::gelu_backward", gelu_backward},
      {"aten::silu_backward", silu_backward},
      {"aten::hardswish_backward", hardswish_backward},
      {"aten::elu_backward", elu_backward},
  };
  return table;
}

}  // namespace triage::fused
