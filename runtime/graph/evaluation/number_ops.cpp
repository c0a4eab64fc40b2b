#include "runtime/graph/evaluation/number_ops.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/library.h>
#include <triage/error.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/compat/assert_async.h"
#include "runtime/graph/evaluation/number_math.h"
#include "runtime/graph/text/describe.h"

namespace triage::graph {
namespace {

constexpr std::string_view kShapeInAten = "aten::_shape_as_tensor", kAssertInAten = "aten::_assert_async";

at::Tensor item(const at::Tensor& self) {
  const at::Scalar number = self.item();
  if (number.isComplex()) throw InputError("triage::item: a complex number cannot be read; take its parts first");
  return number.isFloatingPoint() ? at::scalar_tensor(number, at::TensorOptions(at::kDouble))
                                  : at::scalar_tensor(number, at::TensorOptions(at::kLong));
}

at::Tensor size(const at::Tensor& self, int64_t dim) {
  return at::scalar_tensor(self.size(dim), at::TensorOptions(at::kLong));
}

void assert_scalar(const at::Tensor& condition, c10::string_view message) {
  if (!condition.item().toBool()) throw Error(std::string(message.data(), message.size()));
}

c10::OperatorHandle aten(const char* name, const char* overload) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
}

Value* append_to(Graph& graph, const Node& like, const c10::OperatorHandle& op, std::vector<Operand> operands,
                 TensorMeta meta) {
  Value* result = graph.append(op, std::move(operands), 1, like.source)->results.front();
  graph.edit(result).meta = std::move(meta);
  return result;
}

/// The shape as a tensor, and of that the one element: sizes are no tensors in ATen.
Value* append_size(Graph& graph, const Node& node, const std::vector<Operand>& operands) {
  static const auto shape_op = aten(kShapeInAten.data(), ""), select = aten("aten::select", "int");
  const Value* of = operands[0].value();
  const int64_t rank = of->meta ? static_cast<int64_t>(of->meta->sizes.size()) : 0;
  Value* shape = append_to(graph, node, shape_op, {operands[0]}, {at::kLong, {rank}, c10::kCPU});
  return append_to(graph, node, select, {shape, c10::IValue(int64_t{0}), operands[1]}, {at::kLong, {}, c10::kCPU});
}

/// The options of a `scalar_tensor` that stands for an item: all of them are given, which scripts hardly do, so that it
/// is known again.
std::array<c10::IValue, 4> options_of_item(at::ScalarType dtype) {
  return {static_cast<int64_t>(dtype), static_cast<int64_t>(at::kStrided), c10::Device(c10::kCPU), false};
}

/// A number in a tensor's place reads the tensor.
Value* append_item(Graph& graph, const Node& node, const std::vector<Operand>& operands) {
  static const auto scalar_tensor = aten("aten::scalar_tensor", ""), alias = aten("aten::alias", "");
  Value* of = operands[0].value();
  if (graph.is_variable(of)) {  // whoever wants a number takes that of a variable for fixed
    const TensorMeta meta = of->meta.value_or(TensorMeta{});
    of = append_to(graph, node, alias, {of}, meta);
  }
  const at::ScalarType dtype = node.results.front()->meta ? node.results.front()->meta->dtype : at::kLong;
  std::vector<Operand> call{of};
  for (c10::IValue& option : options_of_item(dtype)) call.emplace_back(std::move(option));
  return append_to(graph, node, scalar_tensor, std::move(call), {dtype, {}, c10::kCPU});
}

void append_assertion(Graph& graph, const Node& node, const std::vector<Operand>& operands) {
  static const auto with_message = aten(kAssertInAten.data(), "msg"), to = aten("aten::to", "device");
  Value* condition = operands[0].value();
  const bool elsewhere = condition && condition->meta && !condition->meta->device.is_cpu();
  if (elsewhere)  // there it would end the device's whole context
    condition = append_to(graph, node, to,
                          {condition, c10::IValue(c10::Device(c10::kCPU)), c10::IValue(static_cast<int64_t>(at::kBool)),
                           c10::IValue(false), c10::IValue(false), c10::IValue()},
                          {at::kBool, condition->meta->sizes, c10::kCPU});
  graph.append(with_message, {elsewhere ? Operand(condition) : operands[0], operands[1]}, 0, node.source);
}

bool is_constant(const Operand& operand, const c10::IValue& value) {
  return operand.constant() && same_constant(*operand.constant(), value);
}

}  // namespace

bool is_number_op(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  return name == kItem || name == kSize || name == kAssert || name == kMath;
}

const Value* item_of(const Node& node) {
  const std::string& name = node.op.operator_name().name;
  if (name == kItem) return node.operands[0].value();
  if (name != "aten::scalar_tensor" || node.operands.size() != 5) return nullptr;
  for (const at::ScalarType dtype : {at::kLong, at::kDouble}) {
    const auto options = options_of_item(dtype);
    if (std::equal(node.operands.begin() + 1, node.operands.end(), options.begin(), options.end(), is_constant))
      return node.operands[0].value();
  }
  return nullptr;
}

operators::Arithmetic arithmetic_of(const Node& node) {
  using operators::Arithmetic;
  const Arithmetic op = operators::semantics_of(node.op).arithmetic;
  const bool has_alpha = op == Arithmetic::add || op == Arithmetic::subtract || op == Arithmetic::subtract_from;
  return has_alpha && (node.operands.size() != 3 || !is_constant(node.operands[2], int64_t{1})) ? Arithmetic::none : op;
}

std::optional<SizeRead> size_read(const Node& node) {
  const std::string& name = node.op.operator_name().name;
  const auto read = [](const Value* of, const Operand& dim) -> std::optional<SizeRead> {
    if (!of || !dim.constant() || !dim.constant()->isInt()) return std::nullopt;
    return SizeRead{of, dim.constant()->toInt()};
  };
  if (name == kSize) return read(node.operands[0].value(), node.operands[1]);
  if (name != "aten::select" || !is_constant(node.operands[1], int64_t{0})) return std::nullopt;
  const Value* shape = node.operands[0].value();
  if (!shape || !shape->producer || shape->producer->op.operator_name().name != kShapeInAten) return std::nullopt;
  return read(shape->producer->operands[0].value(), node.operands[2]);
}

bool is_assertion(const Node& node) {
  const std::string& name = node.op.operator_name().name;
  return name == kAssert || name == kAssertInAten;
}

bool is_choice(const Node& node) {
  const auto& name = node.op.operator_name();
  if (name.name != "triage::select" || !name.overload_name.empty()) return false;
  const Value* const condition = node.operands[0].value();
  return condition && condition->meta && condition->meta->sizes.empty();
}

c10::OperatorHandle number_op(std::string_view name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(std::string(name).c_str(), "");
}

Value* append_in_aten(Graph& graph, const Node& node, const std::vector<Operand>& operands) {
  const std::string& name = node.op.operator_name().name;
  if (name == kItem) return append_item(graph, node, operands);
  if (name == kSize) return append_size(graph, node, operands);
  if (name == kMath) return append_math(graph, node, operands);
  append_assertion(graph, node, operands);
  return nullptr;
}

TORCH_LIBRARY_FRAGMENT(triage, m) {
  m.def("item(Tensor self) -> Tensor");
  m.def("size(Tensor self, int dim) -> Tensor");
  m.def("assert_scalar(Tensor condition, str message) -> ()");
}

TORCH_LIBRARY_IMPL(triage, CompositeExplicitAutograd, m) {
  m.impl("item", item);
  m.impl("size", size);
  m.impl("assert_scalar", assert_scalar);
}

// Of meta tensors some LibTorches ask for a kernel of autograd where others pass on.
TORCH_LIBRARY_IMPL(triage, AutogradMeta, m) { m.impl("size", torch::CppFunction::makeFallthrough()); }

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
    throw InputError(fmt::format("triage::math: {} gives {}, which does not fit an int64", function.name, number));
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
  graph.edit(made).meta = TensorMeta{dtype, {}, c10::kCPU};
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
  if (!function) throw GraphError("triage::math: unknown function", node.source);
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
