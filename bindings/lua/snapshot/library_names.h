#pragma once
#include <lua.hpp>

#include <string>
#include <unordered_map>
#include <vector>

namespace triage::lua {

/// The path of each value of the library that a script can reach by names: {"torch", "relu"}.
using LibraryNames = std::unordered_map<const void*, std::vector<std::string>>;
LibraryNames library_names(lua_State* L);

/// Pushes the value of the library under that path, as the script would see it; false, and nothing, where there is
/// none.
bool push_library_value(lua_State* L, const std::vector<std::string>& path);

/// Pushes the function `name` of core.modules (scripts/prelude/nn.lua).
void push_modules_function(lua_State* L, const char* name);

}  // namespace triage::lua
