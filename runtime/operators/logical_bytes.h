#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

namespace triage::operators {

/// What a tensor of these sizes takes where it is copied: an expanded one has as many elements as it says. A double,
/// which the product of any sizes fits into.
inline double logical_bytes(at::IntArrayRef sizes, at::ScalarType dtype) {
  auto bytes = static_cast<double>(c10::elementSize(dtype));
  for (const int64_t size : sizes) bytes *= static_cast<double>(size);
  return bytes;
}

inline double logical_bytes(at::ArrayRef<at::Tensor> tensors) {
  double bytes = 0;
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined()) bytes += logical_bytes(tensor.sizes(), tensor.scalar_type());
  return bytes;
}

}  // namespace triage::operators
