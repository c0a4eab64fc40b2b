#pragma once
#include <lua.hpp>

#include <string>
#include <vector>

namespace triage::lua {

/// What the last word of `line` may become, sorted. `environments` are the stack indices of the tables in which names
/// are looked up, the nearest first. Runs no Lua code: fields are read without metamethods.
std::vector<std::string> completions(lua_State* L, const std::vector<int>& environments, const std::string& line);

}  // namespace triage::lua
