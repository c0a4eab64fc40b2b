#include "runtime/graph/number_ops.h"

#include <ATen/ATen.h>
#include <torch/library.h>
#include <triage/error.h>

#include "runtime/graph/describe.h"

namespace triage::graph {
namespace {

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
  static const auto shape_op = aten("aten::_shape_as_tensor", ""), select = aten("aten::select", "int");
  const Value* of = operands[0].value();
  const int64_t rank = of->meta ? static_cast<int64_t>(of->meta->sizes.size()) : 0;
  Value* shape = append_to(graph, node, shape_op, {operands[0]}, {at::kLong, {rank}, c10::kCPU});
  return append_to(graph, node, select, {shape, c10::IValue(int64_t{0}), operands[1]}, {at::kLong, {}, c10::kCPU});
}

Value* append_item(Graph& graph, const Node& node, const std::vector<Operand>& operands) {
  static const auto reshape = aten("aten::reshape", ""), to = aten("aten::to", "device");
  const at::ScalarType dtype = node.results.front()->meta ? node.results.front()->meta->dtype : at::kLong;
  const at::ScalarType had = operands[0].value()->meta ? operands[0].value()->meta->dtype : dtype;
  Value* flat =
      append_to(graph, node, reshape, {operands[0], c10::IValue(std::vector<int64_t>{})}, {had, {}, c10::kCPU});
  return append_to(graph, node, to,
                   {flat, c10::IValue(c10::Device(c10::kCPU)), c10::IValue(static_cast<int64_t>(dtype)),
                    c10::IValue(false), c10::IValue(false), c10::IValue()},
                   {dtype, {}, c10::kCPU});
}

void append_assertion(Graph& graph, const Node& node, const std::vector<Operand>& operands) {
  static const auto with_message = c10::Dispatcher::singleton().findSchema({"aten::_assert_async", "msg"});
  if (with_message) {
    graph.append(*with_message, operands, 0, node.source);
  } else {
    graph.append(aten("aten::_assert_async", ""), {operands[0]}, 0, node.source);
  }
}

}  // namespace

bool is_number_op(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  return name == kItem || name == kSize || name == kAssert;
}

c10::OperatorHandle number_op(std::string_view name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(std::string(name).c_str(), "");
}

Value* append_in_aten(Graph& graph, const Node& node, const std::vector<Operand>& operands) {
  const std::string& name = node.op.operator_name().name;
  if (name == kItem) return append_item(graph, node, operands);
  if (name == kSize) return append_size(graph, node, operands);
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

}  // namespace triage::graph
