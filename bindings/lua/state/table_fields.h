#pragma once
#include <lua.hpp>

#include <string>
#include <string_view>

/// Fields of tables without metamethods.
namespace triage::lua {

/// Pushes the own field `name` of the table at `index`; returns its type. Runs no Lua code, so that it may be called
/// where a script has no budget.
int push_own_field(lua_State* L, int index, const char* name);

/// As messages show them, `{codes = table, kind = "X", num_slots = 4}`: the fields with names, in their order, at most
/// six; empty where there is none. Runs no Lua code.
std::string fields_text(lua_State* L, int index);

/// What the table at `index` holds besides the elements of its list, as messages show it: "a field 'dtype' (...)";
/// empty where there is nothing. Runs no Lua code.
std::string beside_list(lua_State* L, int index);

/// Whether `name` is a function among the globals. Runs no Lua code.
bool is_global_function(lua_State* L, const std::string& name);

/// Sets field `name` of the table on top of the stack. The text is charged.
void set_text(lua_State* L, const char* name, std::string_view text);
void set_integer(lua_State* L, const char* name, lua_Integer value);

}  // namespace triage::lua
