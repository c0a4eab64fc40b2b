#include "bindings/lua/sandbox/library.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/state/table_fields.h"
#include "bindings/lua/state/userdata.h"
#include "bindings/lua/values/read_only.h"
#include "runtime/capture/recording/recorder.h"

#include <cstring>
#include <string>

namespace triage::lua {
namespace {

const char object_numbers = 0;  // its address is a registry key

/// The number of an object of this state, given on first use.
lua_Integer object_number(lua_State* L, int index) {
  index = lua_absindex(L, index);
  push_weak_table(L, &object_numbers);
  lua_pushvalue(L, index);
  if (lua_rawget(L, -2) == LUA_TNUMBER) {
    const lua_Integer number = lua_tointeger(L, -1);
    lua_pop(L, 2);
    return number;
  }
  lua_pop(L, 1);
  lua_rawgeti(L, -1, 0);
  const lua_Integer number = lua_tointeger(L, -1) + 1;
  lua_pop(L, 1);
  lua_pushinteger(L, number);
  lua_rawseti(L, -2, 0);
  lua_pushvalue(L, index);
  lua_pushinteger(L, number);
  lua_rawset(L, -3);
  lua_pop(L, 1);
  return number;
}

bool has_address(lua_State* L, int index) {
  switch (lua_type(L, index)) {
    case LUA_TTABLE:
    case LUA_TFUNCTION:
    case LUA_TUSERDATA:
    case LUA_TLIGHTUSERDATA:
    case LUA_TTHREAD:
      break;
    default:
      return false;
  }
  if (luaL_getmetafield(L, index, "__tostring") == LUA_TNIL) return true;
  lua_pop(L, 1);
  return false;
}

int base_tostring(lua_State* L) {
  luaL_checkany(L, 1);
  if (!has_address(L, 1)) return call_wrapped(L);
  push_text_without_address(L, 1);
  return 1;
}

int base_setmetatable(lua_State* L) {
  if (lua_istable(L, 2)) {
    lua_pushliteral(L, "__gc");
    if (lua_rawget(L, 2) != LUA_TNIL)
      throw LibraryError(
          "a policy may not set '__gc': a finalizer runs where no budget can stop it; use a <close> variable");
    lua_pop(L, 1);
  }
  return call_wrapped(L);
}

/// Around the one above, for the script alone: our own modules use weak keys.
int base_setmetatable_of_script(lua_State* L) {
  if (lua_istable(L, 2)) {
    lua_pushliteral(L, "__mode");
    const bool has_mode = lua_rawget(L, 2) == LUA_TSTRING;
    const std::string mode = has_mode ? lua_tostring(L, -1) : "";
    if (mode.find('k') != std::string::npos && mode.find('v') == std::string::npos)
      throw LibraryError(
          "a policy may not make keys weak (__mode = \"k\"): the time to collect them is unbounded; use \"kv\" or "
          "\"v\"");
    lua_pushliteral(L, "__call");
    if (const int type = lua_rawget(L, 2);
        type != LUA_TNIL && type != LUA_TFUNCTION)  // Lua would look for what that calls
      throw LibraryError(std::string("`__call` of a policy's metatable must be a function; got a ") +
                         lua_typename(L, type));
    lua_pop(L, 2);
  }
  return call_wrapped(L);
}

int base_rawset(lua_State* L) {
  if (lua_istable(L, 1) && is_protected_table(L, 1)) throw LibraryError("this table is read-only in policies");
  return call_wrapped(L);
}

/// It may walk over many places that were emptied, and no hook sees it.
int base_next(lua_State* L) {
  charge(L, 0);
  return call_wrapped(L);
}

int base_collectgarbage(lua_State* L) {
  const char* option = luaL_optstring(L, 1, "collect");
  if (std::strcmp(option, "count") != 0)
    throw LibraryError(std::string("collectgarbage(\"") + option + "\") is not for policies; only \"count\" is");
  return call_wrapped(L);
}

int base_tonumber(lua_State* L) {
  if (lua_type(L, 1) == LUA_TSTRING) charge(L, 0, 0, 1 + lua_rawlen(L, 1) / 4);
  return call_wrapped(L);
}

/// Loading walks over the text several times.
int base_load(lua_State* L) {
  if (lua_type(L, 1) == LUA_TSTRING) charge(L, lua_rawlen(L, 1), 0, 1 + lua_rawlen(L, 1));
  return call_wrapped(L);
}

/// The script's message handler. Once a budget has run out it is left out: Lua calls handlers with hooks off, where an
/// endless loop could not be stopped.
int message_handler(lua_State* L) {
  if (context(L).expired) return 1;
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, 1);
  return 1;
}

int base_xpcall(lua_State* L) {
  luaL_checktype(L, 2, LUA_TFUNCTION);
  lua_pushvalue(L, 2);
  lua_pushcclosure(L, library_function<message_handler>, 1);
  lua_replace(L, 2);
  return call_wrapped(L);
}

}  // namespace

void wrap_function(lua_State* L, const char* name, lua_CFunction wrapper) {
  if (push_own_field(L, -1, name) != LUA_TFUNCTION) {
    lua_pop(L, 1);
    return;
  }
  lua_pushcclosure(L, wrapper, 1);
  lua_setfield(L, -2, name);
}

int call_wrapped(lua_State* L) {
  const lua_CFunction function = lua_tocfunction(L, lua_upvalueindex(1));
  if (function && !lua_getupvalue(L, lua_upvalueindex(1), 1)) {
    const int results = function(L);
    reserve(L, 0, "too many results");
    return results;
  }
  if (function) lua_pop(L, 1);  // a closure needs its own frame, for its upvalues
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  call_for_all(L, lua_gettop(L) - 1);
  return lua_gettop(L);
}

void push_text_without_address(lua_State* L, int index) {
  index = lua_absindex(L, index);
  if (!has_address(L, index)) {
    luaL_tolstring(L, index, nullptr);
    return;
  }
  const int named = luaL_getmetafield(L, index, "__name");
  const std::string kind = named == LUA_TSTRING ? lua_tostring(L, -1) : luaL_typename(L, index);
  if (named != LUA_TNIL) lua_pop(L, 1);
  const std::string text = kind + ": " + std::to_string(object_number(L, index));
  lua_pushlstring(L, text.data(), text.size());
}

void budget_base(lua_State* L) {
  lua_pushglobaltable(L);
  wrap_function(L, "tostring", library_function<base_tostring>);
  wrap_function(L, "setmetatable", library_function<base_setmetatable>);
  wrap_function(L, "next", library_function<base_next>);
  wrap_function(L, "rawset", library_function<base_rawset>);
  wrap_function(L, "collectgarbage", library_function<base_collectgarbage>);
  wrap_function(L, "tonumber", library_function<base_tonumber>);
  wrap_function(L, "xpcall", library_function<base_xpcall>);
  lua_pop(L, 1);
}

void budget_loading(lua_State* L) {
  lua_pushglobaltable(L);
  wrap_function(L, "load", library_function<base_load>);
  wrap_function(L, "setmetatable", library_function<base_setmetatable_of_script>);
  lua_pop(L, 1);
}

}  // namespace triage::lua
