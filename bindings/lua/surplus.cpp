#include "bindings/lua/surplus.h"

#include "bindings/lua/state.h"
#include "bindings/lua/tensors/tensor.h"

#include <triage/error.h>

#include <cstring>
#include <string>

namespace triage::lua {

void at_most(lua_State* L, int most, const char* function) {
  int last = lua_gettop(L);
  while (last > most && lua_isnil(L, last)) --last;
  if (last <= most) return;
  const bool method = std::strchr(function, ':') != nullptr;
  const int taken = method ? most - 1 : most, given = method ? last - 1 : last;
  throw InputError(
      std::string(function) + ": expected " +
      (taken == 0 ? "no arguments" : "at most " + std::to_string(taken) + " argument" + (taken == 1 ? "" : "s")) +
      ", got " + std::to_string(given) + ": " + describe(L, most + 1) + " is one too many");
}

namespace {

/// Upvalues: the function, how many arguments it takes, its name.
int call_limited(lua_State* L) {
  at_most(L, static_cast<int>(lua_tointeger(L, lua_upvalueindex(2))), lua_tostring(L, lua_upvalueindex(3)));
  return lua_tocfunction(L, lua_upvalueindex(1))(L);
}

}  // namespace

void push_limited(lua_State* L, const char* name, lua_CFunction function, int most) {
  lua_pushcfunction(L, function);
  lua_pushinteger(L, most);
  lua_pushstring(L, name);
  lua_pushcclosure(L, guarded<call_limited>, 3);
}

void set_limited(lua_State* L, const char* prefix, const LimitedFunction* functions, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const auto& [name, function, most] = functions[i];
    push_limited(L, (std::string(prefix) + name).c_str(), function, most);
    lua_pushstring(L, name);
    lua_insert(L, -2);
    lua_rawset(L, -3);
  }
}

}  // namespace triage::lua
