#pragma once
#include <lua.hpp>

/// The functions that natural Lua calls (bindings/lua/rewriter/natural_edits.h). On Lua values they are Lua's own `if`,
/// `and`, `or` and `not`; masks go on to the library (scripts/prelude/natural.lua).
namespace triage::lua {

int natural_chain(lua_State* L);
int natural_decide(lua_State* L);
int natural_next(lua_State* L);
int natural_leave(lua_State* L);
int natural_loop(lua_State* L);
int natural_keep(lua_State* L);
int natural_join(lua_State* L);
int natural_not(lua_State* L);

/// How many of the branches that the chain at `index` and those around it stand for run for every sample; 0 where there
/// is no chain. `levels`: so many chains at most.
int open_branches(lua_State* L, int index, int levels);

}  // namespace triage::lua
