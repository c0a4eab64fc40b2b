#pragma once
#include <lua.hpp>

/// What functions under `triage.allow_in_graph` wrote to while they were captured: counters, lists, caches. It changes
/// again with every capture, and no graph computes anything from it: guards do not look at it.
namespace triage::lua {

/// The function (or callable) at `index` runs under `triage.allow_in_graph`: guards look for those writes on the way
/// from it.
void note_allowed_function(lua_State* L, int index);
bool is_allowed_function(lua_State* L, int index);

/// The upvalue `name` of the function running at level 1; a global; the table at `index`.
void note_allowed_upvalue(lua_State* L, const char* name);
void note_allowed_global(lua_State* L, const char* name);
void note_allowed_table(lua_State* L, int index);

/// Was upvalue number `upvalue` of the function at `index` noted? Shared with other functions, it is one variable.
bool is_allowed_upvalue(lua_State* L, int index, int upvalue);
/// Was the table, or the global of the name, at `index` noted?
bool is_allowed_write(lua_State* L, int index);

/// How many are noted; grows only.
lua_Integer count_allowed_writes(lua_State* L);

}  // namespace triage::lua
