#include "runtime/typing/first_state.h"

#include <ATen/ops/full.h>
#include <c10/core/InferenceMode.h>

namespace triage {

const at::Tensor* batch_of(at::ArrayRef<at::Tensor> inputs) {
  for (const at::Tensor& input : inputs)
    if (input.defined() && input.dim() > 0) return &input;
  return nullptr;
}

int64_t rows_of(at::ArrayRef<at::Tensor> inputs) {
  const at::Tensor* const batch = batch_of(inputs);
  return batch ? batch->size(0) : 0;
}

bool has_batch(const StateSpec& spec) { return !spec.type.dims.empty() && spec.type.dims[0].kind == Dim::Kind::name; }

std::vector<int64_t> sizes_for(const StateSpec& spec, int64_t batch) {
  std::vector<int64_t> sizes;
  for (const Dim& dim : spec.type.dims) sizes.push_back(size_for(dim, batch));
  return sizes;
}

at::Tensor first_state(const StateSpec& spec, int64_t batch, c10::Device device) {
  const c10::InferenceMode outside(false);
  return at::full(sizes_for(spec, batch), spec.init, at::TensorOptions(spec.type.dtype).device(device));
}

}  // namespace triage
