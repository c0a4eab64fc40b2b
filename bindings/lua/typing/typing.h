#pragma once
#include <triage/typing.h>

#include <lua.hpp>

/// Declared types of tensors in Lua: `Tensor(float32_t, {"N", Dim.hidden})`, `tensorcheck`, and the tables that are
/// raised where a tensor does not fit. What fits is decided by triage::TensorMatcher.
namespace triage::lua {

/// `Tensor`, `Dim`, `Broadcast` and the dtype aliases as globals, and what the prelude needs. After open_torch, before
/// open_prelude.
void open_typing(lua_State* L);

constexpr size_t max_name = 200;  // bytes of the name of a dimension, or of a function

/// What `Tensor(...)` made; null where the value at `index` is something else.
const TensorSpec* test_spec(lua_State* L, int index);

/// Memory that it holds elsewhere.
size_t bytes_behind(const TensorSpec& spec);

/// Pushes the error table of `failure`: kind, message (with the script's line in front), parameter, expected, actual,
/// dim_name, function.
void push_failure(lua_State* L, ValidationFailure failure);

/// Adds `typing_plan` and `checked_call` to the table on top of the stack (tensorcheck.cpp).
void add_tensorcheck(lua_State* L);

}  // namespace triage::lua
