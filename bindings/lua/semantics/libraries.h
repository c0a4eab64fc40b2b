#pragma once
#include <lua.hpp>

/// The tables that scripts find when they begin: Lua's library and ours. They hold many values and are seldom changed,
/// so what a captured graph depends on (compile/closures/closure_state.h) leaves them out. A library that a script
/// writes to becomes a table like others, which is read whole.
namespace triage::lua {

/// Remembers the table at `index`, and all that its fields lead to, as libraries. `environment`: it is the table of
/// globals.
void mark_libraries(lua_State* L, int index, bool environment = false);

/// Remembers the functions that are fields of the libraries in the table of globals at `index`, once its libraries are
/// marked.
void mark_library_functions(lua_State* L, int index);

/// Was the function at `index` there when scripts began?
bool is_library_function(lua_State* L, int index);
/// The function or library at `index` leads to what no variable of a script shows: `load`, `require`, `debug`.
bool leads_anywhere(lua_State* L, int index);

/// The table of globals that was marked.
void push_script_globals(lua_State* L);

enum class LibraryKind { none, library, environment };
LibraryKind library_kind(lua_State* L, int index);

/// The table at `index` is about to be written: neither it nor what leads to it is a library any more.
void note_library_write(lua_State* L, int index);

/// Something was changed that no reader of tables and upvalues may come across.
void note_hidden_write(lua_State* L);
/// How often that was so.
lua_Integer hidden_writes(lua_State* L);

}  // namespace triage::lua
