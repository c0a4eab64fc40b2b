#pragma once
#include "bindings/lua/state/state.h"

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace triage::lua {

/// Charges a copy of `tensor` with elements of `width` bytes before it is made; of an expanded one all elements count.
inline void charge_copy(lua_State* L, const at::Tensor& tensor, size_t width) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<size_t>(tensor.numel()), width, &bytes)) bytes = SIZE_MAX;
  charge(L, 0, bytes);
}
inline void charge_copy(lua_State* L, const at::Tensor& tensor) { charge_copy(L, tensor, tensor.element_size()); }

}  // namespace triage::lua
