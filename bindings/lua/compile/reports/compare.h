#pragma once
#include <lua.hpp>

namespace triage::lua {

/// triage.compare(fn, inputs, {backends = }): where backends differ from `eager` (triage/compare.h).
int compare(lua_State* L);

/// Registers the metatable of its results.
void open_comparison(lua_State* L);

}  // namespace triage::lua
