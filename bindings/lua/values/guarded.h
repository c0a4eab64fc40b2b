#pragma once
#include "bindings/lua/state/state.h"

/// Guarded tensors: a tensor and the flags of its samples, as one value of the script. A userdata of its own type with
/// both for user values, so that whatever knows nothing of flags refuses the value and cannot drop them: it is no
/// tensor, and no table that a script could read or write field by field. Operators take it and say which flags their
/// result has (tensors/calls/guarded_call.h).
namespace triage::lua {

bool is_guarded(lua_State* L, int index);
/// "guarded tensor", or the name of the value's Lua type.
const char* kind_of(lua_State* L, int index);
/// Does one of the values from `first` to the top have flags with it?
bool any_guarded(lua_State* L, int first);

/// Pops the data and the flags, which lies on top; pushes both as one. Throws where they have not the same rows.
void push_guarded(lua_State* L);
/// Of a guarded tensor; the value itself of any other.
void push_data(lua_State* L, int index);
void push_flags(lua_State* L, int index);
/// Of a guarded tensor, or the tensor there; null where there is none, also where a finalizer of a script comes too
/// late for it.
const at::Tensor* find_data(lua_State* L, int index);
at::Tensor flags_of(lua_State* L, int index);
void replace_by_data(lua_State* L, int index);

/// The table on top of the stack becomes the metatable of guarded tensors. Pops it.
void set_guarded_metatable(lua_State* L);

}  // namespace triage::lua
