#pragma once
#include "bindings/lua/sandbox/pattern.h"
#include "bindings/lua/state/state.h"

#include <lua.hpp>

/// Replacements for the functions of Lua's library that allocate or loop inside C, where the count hook sees nothing:
/// each charges the budgets before it works. They keep Lua's meaning and messages. Each function here changes the
/// global library tables of a state that belongs to one policy; what a policy can reach of them is decided in
/// sandbox/environment.h. To be called before the rest of the bindings wraps the same functions for tensors.
namespace triage::lua {

/// `guarded` for these functions: a LibraryError is raised as luaL_error raises, with the caller's line where that is
/// known.
template <lua_CFunction F>
int library_function(lua_State* L) {
  try {
    return F(L);
  } catch (const LibraryError& error) {
    luaL_where(L, 1);
    lua_pushstring(L, error.what());
    lua_concat(L, 2);
  } catch (const std::exception& error) {
    raise_error(L, error);
  }
  return lua_error(L);
}

/// Results of one call in a policy, as of table.unpack and string.byte: copying them is one instruction.
constexpr int most_values = 10'000;

void budget_strings(lua_State* L);  // string, utf8
void budget_tables(lua_State* L);   // table
void budget_base(lua_State* L);     // setmetatable, xpcall, tostring, tonumber, rawset, collectgarbage
void budget_loading(lua_State* L);  // load and setmetatable, once our own modules are there

/// What `tostring` gives in a policy: as Lua's, but an address shows as a number of its own ("table: 3").
void push_text_without_address(lua_State* L, int index);

/// Puts a closure over the function that stands at `name` in the table on top of the stack in that one's place, with
/// the old function as its first upvalue. Does nothing where there is none.
void wrap_function(lua_State* L, const char* name, lua_CFunction wrapper);

/// From such a wrapper: runs the old function on what now are the arguments, and returns the number of its results. In
/// the same frame where it can, so that Lua's messages name the function. (Unlike run_original of wrapping.h it may
/// itself be wrapped again by that.)
int call_wrapped(lua_State* L);

}  // namespace triage::lua
