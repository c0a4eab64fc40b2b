#include "runtime/graph/number_ops.h"

#include <ATen/ATen.h>
#include <torch/library.h>
#include <triage/error.h>

#include "runtime/compat/assert_async.h"
#include "runtime/graph/describe.h"
#include "runtime/graph/number_math.h"

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
  result->meta = std::move(meta);
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

/// A number in a tensor's place reads the tensor. Spelled with every option, which scripts hardly do: `item_of` knows it by that.
Value* append_item(Graph& graph, const Node& node, const std::vector<Operand>& operands) {
  static const auto scalar_tensor = aten("aten::scalar_tensor", ""), alias = aten("aten::alias", "");
  Value* of = operands[0].value();
  if (graph.is_variable(of)) {  // whoever wants a number takes that of a variable for fixed
    const TensorMeta meta = of->meta.value_or(TensorMeta{});
    of = append_to(graph, node, alias, {of}, meta);
  }
  const at::ScalarType dtype = node.results.front()->meta ? node.results.front()->meta->dtype : at::kLong;
  return append_to(graph, node, scalar_tensor,
                   {of, c10::IValue(static_cast<int64_t>(dtype)), c10::IValue(static_cast<int64_t>(at::kStrided)),
                    c10::IValue(c10::Device(c10::kCPU)), c10::IValue(false)},
                   {dtype, {}, c10::kCPU});
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
  const auto& given = node.operands;
  const bool spelled_out = (is_constant(given[1], static_cast<int64_t>(at::kLong)) ||
                            is_constant(given[1], static_cast<int64_t>(at::kDouble))) &&
                           is_constant(given[2], static_cast<int64_t>(at::kStrided)) &&
                           is_constant(given[3], c10::Device(c10::kCPU)) && is_constant(given[4], false);
  return spelled_out ? given[0].value() : nullptr;
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

}  // namespace triage::graph
