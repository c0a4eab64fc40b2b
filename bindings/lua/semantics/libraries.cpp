// Registry tables: library -> list of the libraries that have it as a field, `true` for the environment; function of a
// library
// -> true; function or library -> true where it leads anywhere.
#include "bindings/lua/semantics/libraries.h"

#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/userdata.h"

namespace triage::lua {
namespace {

// Their addresses are registry keys.
const char kLibraries = 0, kHiddenWrites = 0, kFunctions = 0, kLeadAnywhere = 0, kEnvironment = 0;

/// Marks the table on top of the stack, found in the one at `parent` (0: in none). Pops it.
void mark(lua_State* L, int libraries, int parent) {
  reserve(L, 0, "libraries within libraries");
  const int table = lua_gettop(L);
  lua_pushvalue(L, table);
  const int known = lua_rawget(L, libraries);
  if (known == LUA_TNIL) {
    lua_newtable(L);
    lua_pushvalue(L, table);
    lua_pushvalue(L, -2);
    lua_rawset(L, libraries);
  }
  if (parent && known != LUA_TBOOLEAN) {
    const int parents = known == LUA_TNIL ? lua_gettop(L) : table + 1;
    lua_pushvalue(L, parent);
    lua_rawseti(L, parents, static_cast<lua_Integer>(lua_rawlen(L, parents)) + 1);
  }
  if (known == LUA_TNIL) {
    for (lua_pushnil(L); lua_next(L, table);) lua_istable(L, -1) ? mark(L, libraries, table) : lua_pop(L, 1);
  }
  lua_settop(L, table - 1);
}

/// Forgets the table on top of the stack, and those that it was found in. Pops it.
void forget(lua_State* L, int libraries) {
  reserve(L, 0, "libraries within libraries");
  const int table = lua_gettop(L);
  lua_pushvalue(L, table);
  if (lua_rawget(L, libraries) == LUA_TTABLE) {
    lua_pushvalue(L, table);
    lua_pushnil(L);
    lua_rawset(L, libraries);
    const auto count = static_cast<lua_Integer>(lua_rawlen(L, table + 1));
    for (lua_Integer i = 1; i <= count; ++i) {
      lua_rawgeti(L, table + 1, i);
      forget(L, libraries);
    }
  }
  lua_settop(L, table - 1);
}

/// Those of the table at the top of the stack. Pops it.
void remember_functions(lua_State* L, const void* key) {
  for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1))
    if (lua_isfunction(L, -1)) remember(L, -1, key);
  lua_pop(L, 1);
}

}  // namespace

void mark_library_functions(lua_State* L, int index) {
  index = lua_absindex(L, index);
  reserve(L, 0, "libraries");
  lua_pushvalue(L, index);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &kEnvironment);
  lua_pushvalue(L, index);
  remember_functions(L, &kFunctions);
  push_weak_table(L, &kLibraries);
  const int libraries = lua_gettop(L);
  for (lua_pushnil(L); lua_next(L, libraries); lua_pop(L, 1)) {
    lua_pushvalue(L, -2);
    remember_functions(L, &kFunctions);
  }
  for (const char* const name : {"load", "loadfile", "dofile", "require", "debug", "package"}) {
    const int type = lua_getfield(L, index, name);
    if (type == LUA_TTABLE) {
      lua_pushvalue(L, -1);
      remember_functions(L, &kLeadAnywhere);
    }
    if (type != LUA_TNIL) remember(L, -1, &kLeadAnywhere);
    lua_pop(L, 1);
  }
  lua_settop(L, libraries - 1);
}

bool is_library_function(lua_State* L, int index) { return is_remembered(L, index, &kFunctions); }

bool leads_anywhere(lua_State* L, int index) { return is_remembered(L, index, &kLeadAnywhere); }

void push_script_globals(lua_State* L) { lua_rawgetp(L, LUA_REGISTRYINDEX, &kEnvironment); }

void mark_libraries(lua_State* L, int index, bool environment) {
  index = lua_absindex(L, index);
  push_weak_table(L, &kLibraries);
  const int libraries = lua_gettop(L);
  if (environment) {
    lua_pushvalue(L, index);
    lua_pushboolean(L, true);
    lua_rawset(L, libraries);
    for (lua_pushnil(L); lua_next(L, index);) lua_istable(L, -1) ? mark(L, libraries, 0) : lua_pop(L, 1);
  } else {
    lua_pushvalue(L, index);
    mark(L, libraries, 0);
  }
  lua_settop(L, libraries - 1);
}

LibraryKind library_kind(lua_State* L, int index) {
  index = lua_absindex(L, index);
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &kLibraries) != LUA_TTABLE) {
    lua_pop(L, 1);
    return LibraryKind::none;
  }
  lua_pushvalue(L, index);
  const int found = lua_rawget(L, -2);
  lua_pop(L, 2);
  return found == LUA_TNIL ? LibraryKind::none : found == LUA_TTABLE ? LibraryKind::library : LibraryKind::environment;
}

void note_library_write(lua_State* L, int index) {
  if (library_kind(L, index) != LibraryKind::library) return;
  index = lua_absindex(L, index);
  push_weak_table(L, &kLibraries);
  lua_pushvalue(L, index);
  forget(L, lua_gettop(L) - 1);
  lua_pop(L, 1);
}

void note_hidden_write(lua_State* L) {
  lua_pushinteger(L, hidden_writes(L) + 1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &kHiddenWrites);
}

lua_Integer hidden_writes(lua_State* L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &kHiddenWrites);
  const lua_Integer count = lua_tointeger(L, -1);
  lua_pop(L, 1);
  return count;
}

}  // namespace triage::lua
