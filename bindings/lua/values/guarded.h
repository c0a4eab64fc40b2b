#pragma once
#include "bindings/lua/state/state.h"

/// Guarded tensors: a tensor and the flags of its samples, as one value of the script. A table with both under a
/// metatable of its own, so that whatever knows nothing of flags refuses the value and cannot drop them: it is no tensor. Guards of
/// graphs look into it as into any table. Operators take it and say which flags their result has (tensors/guarded_call.h).
namespace triage::lua {

bool is_guarded(lua_State* L, int index);
/// Does one of the values from `first` to the top have flags with it?
bool any_guarded(lua_State* L, int first);

/// Pops the data and the flags, which lies on top; pushes both as one.
void push_guarded(lua_State* L);
/// Of a guarded tensor; the value itself of any other.
void push_data(lua_State* L, int index);
at::Tensor flags_of(lua_State* L, int index);
void replace_by_data(lua_State* L, int index);

/// The table on top of the stack becomes the metatable of guarded tensors. Pops it.
void set_guarded_metatable(lua_State* L);

}  // namespace triage::lua
