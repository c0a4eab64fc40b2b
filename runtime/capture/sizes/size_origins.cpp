#include "runtime/capture/sizes/size_origins.h"

namespace triage::capture {
namespace {

Shape constants(const at::Tensor& tensor) {
  std::vector<Extent> extents;
  for (const int64_t size : tensor.sizes()) extents.push_back(Extent::constant(size));
  return extents;
}

}  // namespace

void SizeOrigins::add_input(const at::Tensor& traced, size_t input) {
  std::vector<Extent> extents;
  for (int64_t dim = 0; dim < traced.dim(); ++dim) extents.push_back({Extent::From::input, 0, input, dim});
  shapes_[traced.unsafeGetTensorImpl()] = std::move(extents);
  if (inputs_.size() <= input) inputs_.resize(input + 1);
  inputs_[input] = traced;
}

void SizeOrigins::add_results(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                              const std::vector<at::Tensor*>& results) {
  const SizeRules rules(op, arguments, *this);
  const bool constant = rules.repeats_itself();
  std::vector<Shape> shapes(results.size());  // all of them before any is added: a result may be an argument
  for (size_t i = 0; i < results.size(); ++i)
    if (results[i]->defined()) shapes[i] = constant ? constants(*results[i]) : checked(rules.result(i), *results[i]);
  for (size_t i = 0; i < results.size(); ++i)
    if (results[i]->defined()) shapes_[results[i]->unsafeGetTensorImpl()] = std::move(shapes[i]);
}

/// A rule that does not even hold here is not believed.
Shape SizeOrigins::checked(Shape shape, const at::Tensor& result) const {
  if (!shape || static_cast<int64_t>(shape->size()) != result.dim()) return std::nullopt;
  for (size_t i = 0; i < shape->size(); ++i) {
    Extent& extent = (*shape)[i];
    const int64_t size = result.size(static_cast<int64_t>(i));
    const bool holds = extent.from == Extent::From::constant ? extent.size == size
                       : extent.from == Extent::From::input  ? inputs_[extent.input].size(extent.dim) == size
                                                             : true;
    if (!holds) extent = {};
  }
  return shape;
}

void SizeOrigins::replace(const at::Tensor& target, const at::Tensor& value) {
  shapes_[target.unsafeGetTensorImpl()] = shape(value);
}

void SizeOrigins::unite(const Extent& a, const Extent& b) {
  const Extent from = representative(a), to = representative(b);
  if (from != to) united_.emplace_back(from, to);
}

Extent SizeOrigins::representative(Extent extent) const {
  for (const auto& [from, to] : united_)  // in the order in which they were united: one pass follows the whole chain
    if (extent == from) extent = to;
  return extent;
}

Shape SizeOrigins::shape(const at::Tensor& tensor) const {
  const auto found = shapes_.find(tensor.unsafeGetTensorImpl());
  if (found == shapes_.end()) return constants(tensor);
  Shape shape = found->second;
  if (shape)
    for (Extent& extent : *shape) extent = representative(extent);
  return shape;
}

Extent SizeOrigins::extent(const at::Tensor& tensor, int64_t dim) const {
  const Shape known = shape(tensor);
  const int64_t wrapped = dim < 0 ? dim + tensor.dim() : dim;
  if (!known || wrapped < 0 || wrapped >= static_cast<int64_t>(known->size())) return {};
  return (*known)[static_cast<size_t>(wrapped)];
}

}  // namespace triage::capture
