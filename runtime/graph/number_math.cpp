#include "runtime/graph/number_math.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/library.h>
#include <triage/error.h>

#include <cmath>

namespace triage::graph {
namespace {

constexpr double kBeyondIntegers = 9223372036854775808.0;  // 2^63

/// The square is exact to half a unit in the last place, which std::pow does not promise.
double power(double x, double exponent) { return exponent == 2 ? x * x : std::pow(x, exponent); }

template <double (*function)(double)>
constexpr MathFunction unary(std::string_view name, const char* operation, bool whole = false, bool rises = false) {
  return {name, function, nullptr, whole, rises, operation, ""};
}

template <double (*function)(double, double)>
constexpr MathFunction binary(std::string_view name, const char* operation, const char* overload) {
  return {name, nullptr, function, false, false, operation, overload};
}

constexpr MathFunction functions[] = {
    unary<std::sqrt>("sqrt", "aten::sqrt", false, true),
    unary<std::exp>("exp", "aten::exp"),
    unary<std::log>("log", "aten::log"),
    unary<std::log2>("log2", "aten::log2"),
    unary<std::log10>("log10", "aten::log10"),
    unary<std::sin>("sin", "aten::sin"),
    unary<std::cos>("cos", "aten::cos"),
    unary<std::tan>("tan", "aten::tan"),
    unary<std::asin>("asin", "aten::asin"),
    unary<std::acos>("acos", "aten::acos"),
    unary<std::floor>("floor", "aten::floor", true, true),
    unary<std::ceil>("ceil", "aten::ceil", true, true),
    binary<std::atan2>("atan2", "aten::atan2", ""),
    binary<std::fmod>("fmod", "aten::fmod", "Tensor"),
    binary<power>("pow", "aten::pow", "Tensor_Tensor"),
};

const MathFunction& required(c10::string_view name, bool binary) {
  const MathFunction* function = find_math({name.data(), name.size()});
  if (!function || (function->binary != nullptr) != binary)
    throw InputError(fmt::format("triage::math: no function \"{}\" of {}", std::string_view(name.data(), name.size()),
                                 binary ? "two numbers" : "one number"));
  return *function;
}

at::Tensor result(const MathFunction& function, double number) {
  if (!function.whole) return at::scalar_tensor(number, at::TensorOptions(at::kDouble));
  if (!(number >= -kBeyondIntegers && number < kBeyondIntegers))
    throw InputError(fmt::format("triage::math: {} gives {}, which no int64 holds", function.name, number));
  return at::scalar_tensor(static_cast<int64_t>(number), at::TensorOptions(at::kLong));
}

at::Tensor math(const at::Tensor& self, c10::string_view name) {
  const MathFunction& function = required(name, false);
  return result(function, function.unary(self.item().toDouble()));
}

at::Tensor math_of_two(const at::Tensor& self, c10::string_view name, const at::Tensor& other) {
  const MathFunction& function = required(name, true);
  return result(function, function.binary(self.item().toDouble(), other.item().toDouble()));
}

at::Tensor math_with_scalar(const at::Tensor& self, c10::string_view name, const at::Scalar& other) {
  const MathFunction& function = required(name, true);
  return result(function, function.binary(self.item().toDouble(), other.toDouble()));
}

Value* append_as(Graph& graph, const Node& like, const char* name, const char* overload, std::vector<Operand> operands,
                 at::ScalarType dtype) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
  Value* made = graph.append(op, std::move(operands), 1, like.source)->results.front();
  made->meta = TensorMeta{dtype, {}, c10::kCPU};
  return made;
}

Value* append_conversion(Graph& graph, const Node& like, const Operand& number, at::ScalarType dtype) {
  return append_as(
      graph, like, "aten::to", "dtype",
      {number, c10::IValue(static_cast<int64_t>(dtype)), c10::IValue(false), c10::IValue(false), c10::IValue()}, dtype);
}

/// A number as a tensor of float64.
Operand as_double(Graph& graph, const Node& like, const Operand& number) {
  Value* value = number.value();
  if (!value)
    return append_as(
        graph, like, "aten::scalar_tensor", "",
        {number, c10::IValue(static_cast<int64_t>(at::kDouble)), c10::IValue(), c10::IValue(), c10::IValue()},
        at::kDouble);
  if (value->meta && value->meta->dtype == at::kDouble) return number;
  return append_conversion(graph, like, number, at::kDouble);
}

}  // namespace

const MathFunction* find_math(std::string_view name) {
  for (const MathFunction& function : functions)
    if (function.name == name) return &function;
  return nullptr;
}

const MathFunction* math_of(const Node& node) {
  if (node.op.operator_name().name != kMath) return nullptr;
  const c10::IValue* name = node.operands[1].constant();
  return name && name->isString() ? find_math(name->toStringRef()) : nullptr;
}

Value* append_math(Graph& graph, const Node& node, const std::vector<Operand>& operands) {
  const MathFunction* function = math_of(node);
  if (!function) throw GraphError("triage::math: a function that is not known", node.source);
  std::vector<Operand> numbers{as_double(graph, node, operands[0])};
  if (function->binary) numbers.push_back(as_double(graph, node, operands[2]));
  Value* made = append_as(graph, node, function->operation, function->overload, std::move(numbers), at::kDouble);
  if (!function->whole) return made;
  return append_conversion(graph, node, made, at::kLong);
}

TORCH_LIBRARY_FRAGMENT(triage, m) {
  m.def("math(Tensor self, str function) -> Tensor");
  m.def("math.Scalar(Tensor self, str function, Scalar second) -> Tensor");
  m.def("math.Tensor(Tensor self, str function, Tensor second) -> Tensor");
}

TORCH_LIBRARY_IMPL(triage, CompositeExplicitAutograd, m) {
  m.impl("math", math);
  m.impl("math.Scalar", math_with_scalar);
  m.impl("math.Tensor", math_of_two);
}

}  // namespace triage::graph
