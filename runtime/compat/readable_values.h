#pragma once
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/Tensor.h>
#include <c10/util/StringUtil.h>
#include <runtime/compat/readable_memory.h>
#include <triage/error.h>

namespace triage::compat {

/// The values of a tensor in memory of the CPU that a loop may read, row after row, from `data_ptr()` on: the tensor
/// itself where it is so already, else a copy. Throws InputError where LibTorch has no such values, as for tensors on
/// the meta device or batched by vmap.
inline at::Tensor readable_values(const at::Tensor& tensor) {
  namespace functional = at::functionalization::impl;
  at::Tensor values = tensor.detach();
  if (functional::isFunctionalTensor(values)) {
    functional::sync(values);
    values = functional::from_functional_tensor(values);
  }
  const bool has_values = values.layout() == at::kStrided && !values.is_meta() && !lacks_memory(values);
  if (has_values) values = values.to(at::kCPU).resolve_conj().resolve_neg().contiguous();
  if (has_values && !readable_memory(values)) values = values.clone();
  if (!has_values || (values.numel() > 0 && !readable_memory(values)))
    throw InputError(
        c10::str("a tensor with the keys ", tensor.key_set(),
                 " has no memory that its values can be read from; pass a dense tensor with its own memory"));
  return values;
}

}  // namespace triage::compat
