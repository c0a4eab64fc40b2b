#pragma once
#include <lua.hpp>

namespace triage::lua {

/// Registers the metatable of tensors and the methods that are more than a call of an operator. Registry key of the
/// method table: "triage.tensor.methods"; the source rewriter's comparisons call its `lt le gt ge eq ne`.
void open_tensor(lua_State* L);

/// Registers the metatable of guarded tensors.
void open_guarded(lua_State* L);

}  // namespace triage::lua
