#pragma once
#include "bindings/lua/state.h"

#include <utility>

/// Tensors as Lua values: a userdata that owns an at::Tensor, methods in a table apart from the metatable.
namespace triage::lua {

/// Registers the metatable and the methods that are more than a call of an operator. Registry key of the method table:
/// "triage.tensor.methods"; the source rewriter's comparisons call its `lt le gt ge eq ne`.
void open_tensor(lua_State* L);

/// Pushes the method table. Operators are added to it when they are first used.
void push_methods(lua_State* L);

/// Installs functions in the method table. Each part of the bindings adds its own.
void add_methods(lua_State* L, const luaL_Reg* functions);

/// A tensor of the script, known to the recorder as `recorded` as long as this object lives: the script has the same value all
/// the time, which is the caller's own tensor wherever nothing is recorded.
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

/// Pushes results of one Lua call: an undefined tensor becomes nil.
void push_optional_tensor(lua_State* L, const at::Tensor& tensor);

/// What error messages call the value: `int 3`, `string "x"`, `Tensor float32[2, 3]`, `nil`.
std::string describe(lua_State* L, int index);

/// Gives the tensor at `index` other data, which the script's budget counts in the place of its own.
void set_data(lua_State* L, int index, const at::Tensor& data);

}  // namespace triage::lua
