#pragma once
#include <lua.hpp>

#include <new>
#include <utility>

/// Values of C++ that scripts hold, and tables of ours in the registry. A `key` is the address of an object of the file
/// that owns it: no script reaches what stands under it, so a metatable found there proves what a userdata is.
namespace triage::lua {

/// Is the metatable of the value at `index` the one at `key`?
inline bool has_metatable(lua_State* L, int index, const void* key) {
  if (!lua_getmetatable(L, index)) return false;
  lua_rawgetp(L, LUA_REGISTRYINDEX, key);
  const bool same = lua_rawequal(L, -1, -2) != 0;
  lua_pop(L, 2);
  return same;
}

/// The T in the userdata at `index`, or null where that is something else.
template <typename T>
T* test_userdata(lua_State* L, int index, const void* key) {
  return lua_type(L, index) == LUA_TUSERDATA && has_metatable(L, index, key) ? static_cast<T*>(lua_touserdata(L, index))
                                                                             : nullptr;
}

/// `behind`: bytes that the value holds where Lua's collector and the script's budget of memory do not see them. As
/// many are taken in Lua, too, so that both count them.
template <typename T>
T& push_userdata(lua_State* L, T value, const void* key, size_t behind = 0) {
  T* const box = new (lua_newuserdatauv(L, sizeof(T) + behind, 0)) T(std::move(value));
  lua_rawgetp(L, LUA_REGISTRYINDEX, key);
  lua_setmetatable(L, -2);
  return *box;
}

/// A finalizer. It runs once: what was finalized is no T any more.
template <typename T, const char& key>
int free_userdata(lua_State* L) {
  if (T* const box = test_userdata<T>(L, 1, &key)) {
    box->~T();
    lua_pushnil(L);
    lua_setmetatable(L, 1);
  }
  return 0;
}

/// Puts the metatable of a type under `key`; scripts see its name in its place.
inline void make_metatable(lua_State* L, const void* key, const char* name, const luaL_Reg* functions) {
  lua_newtable(L);
  luaL_setfuncs(L, functions, 0);
  for (const char* const field : {"__name", "__metatable"}) {
    lua_pushstring(L, name);
    lua_setfield(L, -2, field);
  }
  lua_rawsetp(L, LUA_REGISTRYINDEX, key);
}

/// The keys of the table on top of the stack become weak.
inline void make_weak(lua_State* L) {
  lua_createtable(L, 0, 1);
  lua_pushliteral(L, "k");
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
}

/// Pushes a new table with weak keys, and puts it under `key`.
inline void push_new_weak_table(lua_State* L, const void* key) {
  lua_newtable(L);
  make_weak(L);
  lua_pushvalue(L, -1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, key);
}

/// Pushes the table with weak keys under `key`; made on first use.
inline void push_weak_table(lua_State* L, const void* key) {
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, key) == LUA_TTABLE) return;
  lua_pop(L, 1);
  push_new_weak_table(L, key);
}

/// Puts the value at `index` into the table with weak keys under `key`.
inline void remember(lua_State* L, int index, const void* key) {
  index = lua_absindex(L, index);
  push_weak_table(L, key);
  lua_pushvalue(L, index);
  lua_pushboolean(L, true);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

/// Is the value at `index` in that table?
inline bool is_remembered(lua_State* L, int index, const void* key) {
  index = lua_absindex(L, index);
  push_weak_table(L, key);
  lua_pushvalue(L, index);
  const bool known = lua_rawget(L, -2) != LUA_TNIL;
  lua_pop(L, 2);
  return known;
}

/// Pushes the table under `key`; made on first use.
inline void push_registry_table(lua_State* L, const void* key) {
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, key) == LUA_TTABLE) return;
  lua_pop(L, 1);
  lua_newtable(L);
  lua_pushvalue(L, -1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, key);
}

}  // namespace triage::lua
