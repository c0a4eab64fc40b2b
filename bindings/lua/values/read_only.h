#pragma once
#include <lua.hpp>

/// Tables that scripts only read.
namespace triage::lua {

/// Pushes a read-only view of the table at `index`: reads and iteration go through, writes are errors that name `name`.
/// Tables within it are made read-only in place.
void push_read_only(lua_State* L, int index, const char* name);

/// Marks the table at `index` as one that scripts may not change, even with rawset.
void protect_table(lua_State* L, int index);
bool is_protected_table(lua_State* L, int index);

/// Makes reading a field that the table at the top of the stack does not have an error that begins with `complaint`
/// ("err has no") and guesses what was meant. It keeps `rawget` and `pairs`, and has no other metamethod.
void refuse_unknown_fields(lua_State* L, const char* complaint);

}  // namespace triage::lua
