#pragma once
#include <lua.hpp>

#include <string>

/// A table's fields as messages show them.
namespace triage::lua {

/// `{codes = table, kind = "X", num_slots = 4}`: the fields with names, in their order, at most six; empty where there is none.
/// Runs no Lua code.
std::string fields_text(lua_State* L, int index);

}  // namespace triage::lua
