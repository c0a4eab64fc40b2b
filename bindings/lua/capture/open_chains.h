#pragma once
#include <lua.hpp>

#include <cstddef>

/// Chains of IF that a script began while capturing and did not end with ELSE yet: one that is never ended selects nothing.
namespace triage::lua {

/// Adds `open_chain` and `close_chain`, for scripts/prelude/control_flow.lua, to the table on top of the stack.
void add_open_chains(lua_State* L);

/// Throws an error that names the line of the first, and forgets them; `forget_chains` only forgets them.
void check_finished_chains(lua_State* L);
void forget_chains(lua_State* L);
/// How many were begun, and to forget those begun after the first `kept`: an error that was caught left them behind.
size_t count_chains(lua_State* L);
void forget_chains(lua_State* L, size_t kept);

}  // namespace triage::lua
