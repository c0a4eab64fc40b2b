#include "runtime/capture/tensors/synthetic_inputs.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <limits>

namespace triage::capture {
namespace {

at::Tensor mixed_rows(const InputShape& shape, const at::TensorOptions& options) {
  constexpr double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const int64_t rows = shape.sizes[0];
  at::Tensor values;
  if (at::isFloatingType(shape.dtype)) {
    const at::Tensor choice = at::tensor({nan, 1.0, inf, 1e30, 0.0, -1e30, 0.5, -inf});
    values = choice.index_select(0, at::arange(rows).remainder(choice.size(0)));
  } else {
    values = at::arange(rows).remainder(2);
  }
  std::vector<int64_t> beside(shape.sizes.size(), 1);
  beside[0] = rows;
  return values.to(options).view(beside).expand(shape.sizes).contiguous();
}

}  // namespace

at::Tensor synthetic(const InputShape& shape, SyntheticValues values) {
  const auto options = at::TensorOptions(shape.dtype).device(shape.device);
  const auto rank = shape.sizes.size();
  at::Tensor tensor;
  if (values == SyntheticValues::mixed && rank >= 1)
    tensor = mixed_rows(shape, options);
  else if (values == SyntheticValues::identity && rank >= 2 && shape.dtype != at::kBool)
    tensor = at::eye(shape.sizes[rank - 2], shape.sizes[rank - 1], shape.device)
                 .to(shape.dtype)
                 .expand(shape.sizes)
                 .contiguous();
  else
    tensor = values == SyntheticValues::zeros ? at::zeros(shape.sizes, options) : at::ones(shape.sizes, options);
  return tensor.set_requires_grad(shape.requires_grad);
}

}  // namespace triage::capture
