#include "bindings/lua/semantics/closing.h"

#include "bindings/lua/semantics/intrinsics.h"
#include "bindings/lua/state/effects.h"

namespace triage::lua {
namespace {

const char kHolder = 0;  // its address: registry key of the metatable

int closed(lua_State*, int, lua_KContext) { return 0; }

/// (holder, error)
int close_held(lua_State* L) {
  if (closes_nothing(L)) return 0;
  lua_settop(L, 2);
  lua_getiuservalue(L, 1, 1);
  if (luaL_getmetafield(L, 3, "__close") == LUA_TNIL) lua_pushnil(L);  // gone since it was declared
  if (!lua_isfunction(L, 4) && luaL_getmetafield(L, 4, "__call") == LUA_TNIL)
    return luaL_error(L, "attempt to call a %s value (metamethod 'close')", luaL_typename(L, 4));
  lua_settop(L, 4);
  lua_insert(L, 1);   // __close, holder, error, value
  lua_replace(L, 2);  // __close, value, error
  lua_callk(L, 2, 0, 0, closed);
  return 0;
}

void push_metatable(lua_State* L) {
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &kHolder) != LUA_TNIL) return;
  lua_pop(L, 1);
  lua_createtable(L, 0, 2);
  lua_pushcfunction(L, close_held);
  lua_setfield(L, -2, "__close");
  lua_pushboolean(L, false);
  lua_setfield(L, -2, "__metatable");
  lua_pushvalue(L, -1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &kHolder);
}

/// Puts in the place of the value at `index` what Lua is to close for it. Userdata are the library's own and run no
/// script.
void hold(lua_State* L, int index, const char* variable) {
  if (!lua_toboolean(L, index)) return;  // Lua closes neither nil nor false
  if (luaL_getmetafield(L, index, "__close") == LUA_TNIL) {
    push_where(L, 1, 0, false);
    lua_pushfstring(L, "variable '%s' got a non-closable value", variable);
    lua_concat(L, 2);
    lua_error(L);
  }
  lua_pop(L, 1);
  if (lua_isuserdata(L, index)) return;
  lua_newuserdatauv(L, 0, 1);
  lua_pushvalue(L, index);
  lua_setiuservalue(L, -2, 1);
  push_metatable(L);
  lua_setmetatable(L, -2);
  lua_replace(L, index);
}

}  // namespace

int push_closing_value(lua_State* L) {
  hold(L, 1, lua_tostring(L, 2));
  lua_settop(L, 1);
  return 1;
}

int push_iteration(lua_State* L) {
  lua_settop(L, 4);
  hold(L, 4, "(for state)");
  return 4;
}

}  // namespace triage::lua
