#pragma once
#include <lua.hpp>

namespace triage::lua {

/// Adds what helps capture over what it cannot see through to the table `triage` on top of the stack.
void add_escape_hatches(lua_State* L);

/// Was the function at `index` made by `triage.assume_constant_result`? What it reads and writes is nothing to guards.
bool is_assumed_constant(lua_State* L, int index);

}  // namespace triage::lua
