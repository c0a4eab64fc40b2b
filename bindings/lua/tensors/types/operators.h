#pragma once
#include "bindings/lua/state/state.h"

/// Lua's operators on tensors. Either side may be a number or a boolean; then the result is what PyTorch's reflected
/// operator gives (`1 / x` is `x:reciprocal() * 1`).
namespace triage::lua {

/// Adds `__add`, `__sub`, ... to the metatable on top of the stack. There is no `__eq`, `__lt`, `__le`: Lua makes
/// booleans of what they return. The source rewriter calls the methods below instead.
void add_metamethods(lua_State* L);

/// Adds the methods `lt le gt ge eq ne`, which take a tensor on either side.
void add_comparisons(lua_State* L);

/// Is the value one of these methods?
bool is_comparison(lua_State* L, int index);

}  // namespace triage::lua
