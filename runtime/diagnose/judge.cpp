#include "runtime/diagnose/judge.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "runtime/graph/argument_type.h"
#include "runtime/graph/passes/uses.h"

namespace triage::diagnose {
namespace {

at::Tensor in_double(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  if (tensor.is_complex()) return tensor.to(at::kComplexDouble);
  return tensor.is_floating_point() ? tensor.to(at::kDouble) : tensor;
}

at::ScalarType wide(at::ScalarType dtype) {
  if (at::isFloatingType(dtype)) return at::kDouble;
  return at::isComplexType(dtype) ? at::kComplexDouble : dtype;
}

}  // namespace

graph::Graph in_float64(const graph::Graph& graph) {
  graph::Graph made(graph.name());
  std::unordered_map<const graph::Value*, graph::Value*> copies;
  for (const auto& input : graph.inputs()) {
    copies[input.value] = made.add_input(input.value->name, input.kind);
    made.edit(copies[input.value]).is_flags = input.value->is_flags;
  }
  for (const auto& constant : graph.constants()) {
    const at::Tensor value = constant.value->is_flags ? constant.tensor : in_double(constant.tensor);
    if (constant.tensor.unsafeGetTensorImpl()->is_wrapped_number())
      value.unsafeGetTensorImpl()->set_wrapped_number(true);
    copies[constant.value] = made.add_constant(value, constant.value->name);
    made.edit(copies[constant.value]).is_flags = constant.value->is_flags;
  }
  for (const auto& node : graph.nodes()) {
    std::vector<graph::Operand> operands = node->operands;
    const auto& arguments = node->op.schema().arguments();
    for (size_t i = 0; i < operands.size(); ++i) {
      graph::for_each_use(operands[i], [&](graph::Value*& value) { value = copies.at(value); });
      const c10::IValue* constant = operands[i].constant();
      if (constant && constant->isInt() && graph::type_of(arguments[i]).kind == graph::Kind::dtype)
        operands[i] = graph::Operand(c10::IValue(static_cast<int64_t>(wide(constant->toScalarType()))));
    }
    const graph::Node* twin = made.append(node->op, std::move(operands), node->results.size(), node->source);
    for (size_t i = 0; i < node->results.size(); ++i) {
      copies[node->results[i]] = twin->results[i];
      made.edit(twin->results[i]).is_flags = node->results[i]->is_flags;
    }
  }
  std::vector<graph::Value*> outputs;
  for (const graph::Value* output : graph.outputs()) outputs.push_back(copies.at(output));
  made.set_outputs(std::move(outputs));
  return made;
}

std::vector<at::Tensor> inputs_in_float64(const graph::Graph& graph, const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> made;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool flags = graph.inputs()[i].value->is_flags;
    at::Tensor tensor = flags ? inputs[i] : in_double(inputs[i].detach());
    if (inputs[i].unsafeGetTensorImpl()->is_wrapped_number()) tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    if (!flags && inputs[i].requires_grad()) tensor = tensor.detach().requires_grad_(true);
    made.push_back(tensor);
  }
  return made;
}

namespace {

std::string kind_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return "nothing";
  return fmt::format("{}[{}]", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

std::string element_text(const at::Tensor& tensor, int64_t element) {
  const at::Tensor one = tensor.reshape({-1})[element];
  if (one.is_floating_point()) return fmt::format("{:.9g}", one.item<double>());
  return fmt::format("{}", one.item<int64_t>());
}

int64_t first_true(const at::Tensor& mask) { return mask.reshape({-1}).to(at::kByte).argmax().item<int64_t>(); }

std::string place_of(const at::Tensor& tensor, int64_t element) {
  if (tensor.dim() == 0) return "";
  return fmt::format(" at element {} (row {})", element,
                     element / std::max<int64_t>(1, tensor.numel() / tensor.size(0)));
}

}  // namespace

std::optional<std::string> wrong_numbers(at::Tensor given, at::Tensor eager, at::Tensor judge) {
  if (given.defined() != eager.defined() ||
      (given.defined() && (given.scalar_type() != eager.scalar_type() || given.sizes() != eager.sizes())))
    return fmt::format("is {}, and {} with eager", kind_of(given), kind_of(eager));
  if (!given.defined() || given.numel() == 0) return std::nullopt;
  if (given.is_complex()) {
    given = at::view_as_real(given.resolve_conj()), eager = at::view_as_real(eager.resolve_conj());
    judge = at::view_as_real(judge.resolve_conj());
  }
  if (!given.is_floating_point()) {
    const at::Tensor differs = given.ne(eager);
    if (!differs.any().item<bool>()) return std::nullopt;
    const int64_t at = first_true(differs);
    return fmt::format("differs{}: {}, and {} with eager", place_of(given, at), element_text(given, at),
                       element_text(eager, at));
  }
  const at::Tensor g = given.to(at::kDouble), e = eager.to(at::kDouble);
  at::Tensor j = judge.defined() && judge.sizes() == e.sizes() ? judge.to(at::kDouble) : e;
  const at::Tensor places = g.isnan().ne(e.isnan()) | (g.isinf() & e.isfinite()) | (e.isinf() & g.isfinite()) |
                            (g.isinf() & e.isinf() & g.ne(e));
  if (places.any().item<bool>()) {
    const int64_t at = first_true(places);
    return fmt::format("has other NaN or Inf places, the first{}: {}, and {} with eager", place_of(given, at),
                       element_text(given, at), element_text(eager, at));
  }
  j = at::where(j.isfinite(), j, e);  // what only float64 can hold
  const double epsilon = given.scalar_type() == at::kDouble     ? std::numeric_limits<double>::epsilon()
                         : given.scalar_type() == at::kFloat    ? std::numeric_limits<float>::epsilon()
                         : given.scalar_type() == at::kBFloat16 ? 0x1p-7
                                                                : 0x1p-10;
  const at::Tensor finite = g.isfinite() & e.isfinite();
  const at::Tensor of_eager = at::where(finite, (e - j).abs(), at::zeros_like(j));
  const at::Tensor of_given = at::where(finite, (g - j).abs(), at::zeros_like(j));
  const double tiny = given.scalar_type() == at::kDouble ? 1e-300 : given.scalar_type() == at::kHalf ? 6e-8 : 1e-37;
  const at::Tensor allowed = (of_eager.max() + j.abs() * epsilon + tiny) * kErrorFactor;
  const at::Tensor wrong = of_given.gt(allowed);
  if (!wrong.any().item<bool>()) return std::nullopt;
  const int64_t at = at::where(wrong, of_given, at::zeros_like(j)).reshape({-1}).argmax().item<int64_t>();
  return fmt::format(
      "is wrong{}: {}; eager gives {} and float64 {}: off by {:.3g}, where {} times the error of eager allow {:.3g}",
      place_of(given, at), element_text(given, at), element_text(eager, at), element_text(j, at),
      of_given.reshape({-1})[at].item<double>(), kErrorFactor, allowed.reshape({-1})[at].item<double>());
}

}  // namespace triage::diagnose
