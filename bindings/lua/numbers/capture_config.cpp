#include "bindings/lua/numbers/capture_config.h"

#include "bindings/lua/state.h"
#include "bindings/lua/tensors/tensor.h"

#include <triage/error.h>

#include <string>

namespace triage::lua {
namespace {

const char settings_key = 0;  // registry: {capture_scalar_outputs = boolean}

void push_settings(lua_State* L) {
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &settings_key) == LUA_TTABLE) return;
  lua_pop(L, 1);
  lua_newtable(L);
  lua_pushboolean(L, false);
  lua_setfield(L, -2, "capture_scalar_outputs");
  lua_pushvalue(L, -1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &settings_key);
}

/// Pushes the settings; throws where the string at `index` names none.
void check_name(lua_State* L, int index) {
  push_settings(L);
  lua_pushvalue(L, index);
  if (lua_rawget(L, -2) == LUA_TNIL)
    throw ConfigError("triage.config has no setting " + describe(L, index) + "; it has capture_scalar_outputs");
  lua_pop(L, 1);
}

int get(lua_State* L) {
  check_name(L, 2);
  lua_pushvalue(L, 2);
  lua_rawget(L, -2);
  return 1;
}

int set(lua_State* L) {
  check_name(L, 2);
  if (!lua_isboolean(L, 3))
    throw ConfigError("triage.config." + std::string(lua_tostring(L, 2)) + " is true or false, got " + describe(L, 3));
  lua_pushvalue(L, 2);
  lua_pushvalue(L, 3);
  lua_rawset(L, -3);
  ++context(L).epoch;
  return 0;
}

}  // namespace

void push_capture_config(lua_State* L) {
  static const luaL_Reg meta[] = {{"__index", guarded<get>}, {"__newindex", guarded<set>}, {nullptr, nullptr}};
  lua_newtable(L);
  luaL_newlib(L, meta);
  lua_pushliteral(L, "config");
  lua_setfield(L, -2, "__metatable");
  lua_setmetatable(L, -2);
}

bool captures_scalar_outputs(lua_State* L) {
  push_settings(L);
  lua_getfield(L, -1, "capture_scalar_outputs");
  const bool on = lua_toboolean(L, -1);
  lua_pop(L, 2);
  return on;
}

}  // namespace triage::lua
