#pragma once
#include "bindings/lua/state/state.h"

#include <utility>

/// Tensors as Lua values: a userdata that owns an at::Tensor, and counts its memory in the script's account; methods in
/// a table apart from the metatable. What scripts do with them is defined above (tensors/types/tensor_type.h).
namespace triage::lua {

void push_tensor(lua_State* L, at::Tensor tensor);  // undefined: nil
/// Null when the value at `index` is none (a forged table included).
const at::Tensor* test_tensor(lua_State* L, int index);
const at::Tensor& check_tensor(lua_State* L, int index);  // raises "bad argument #n (tensor expected, got ...)"
bool is_closed_tensor(lua_State* L, int index);

/// The table on top of the stack becomes the metatable of all tensors. Pops it.
void set_tensor_metatable(lua_State* L);

/// Pushes the method table. Operators are added to it when they are first used.
void push_methods(lua_State* L);

/// Installs functions in the method table. Each part of the bindings adds its own.
void add_methods(lua_State* L, const luaL_Reg* functions);

/// A tensor of the script, known to the recorder as `recorded` as long as this object lives: the script has the same
/// value all the time, which is the caller's own tensor wherever nothing is recorded.
class LentTensor {
 public:
  LentTensor(lua_State* L, int index, at::Tensor recorded);
  ~LentTensor();
  LentTensor(LentTensor&& other) noexcept
      : box_(std::exchange(other.box_, nullptr)),
        tensor_(std::move(other.tensor_)),
        original_(std::move(other.original_)) {}
  LentTensor& operator=(LentTensor&&) = delete;

 private:
  void* box_;  // which the caller's stack keeps alive
  at::Tensor tensor_, original_;
};

/// Gives the tensor at `index` other data, which the script's budget counts in the place of its own.
void set_data(lua_State* L, int index, const at::Tensor& data);

}  // namespace triage::lua
