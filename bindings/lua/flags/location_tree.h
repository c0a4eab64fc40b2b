#pragma once
#include <triage/location_tree.h>

#include <lua.hpp>

namespace triage::lua {

/// The tree that a Lua value is; null where it is none.
LocationTree* test_location_tree(lua_State* L, int index);

}  // namespace triage::lua
