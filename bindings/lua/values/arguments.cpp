#include "bindings/lua/values/arguments.h"

#include "bindings/lua/state/state.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/guarded.h"
#include "bindings/lua/values/number.h"
#include "bindings/lua/values/tensor.h"

#include <triage/error.h>

#include <cstring>
#include <string>

namespace triage::lua {

void wrong_argument(lua_State* L, const Argument& argument, const char* what) {
  throw InputError(std::string(argument.function) + ": expected " + what + " as `" + argument.name + "`, got " +
                   describe(L, argument.index));
}

const char* text_argument(lua_State* L, const Argument& argument) {
  specialize_number(L, argument.index);
  if (!lua_isstring(L, argument.index)) wrong_argument(L, argument, "a string");
  return lua_tostring(L, argument.index);
}

const char* text_argument(lua_State* L, const Argument& argument, const char* otherwise) {
  return lua_isnoneornil(L, argument.index) ? otherwise : text_argument(L, argument);
}

lua_Integer integer_argument(lua_State* L, const Argument& argument) {
  specialize_number(L, argument.index);
  int whole = 0;
  const lua_Integer value = lua_tointegerx(L, argument.index, &whole);
  if (!whole) wrong_argument(L, argument, "an integer");
  return value;
}

lua_Integer integer_argument(lua_State* L, const Argument& argument, lua_Integer otherwise) {
  return lua_isnoneornil(L, argument.index) ? otherwise : integer_argument(L, argument);
}

bool boolean_argument(lua_State* L, const Argument& argument) {
  specialize_number(L, argument.index);
  if (!lua_isboolean(L, argument.index)) wrong_argument(L, argument, "true or false");
  return lua_toboolean(L, argument.index) != 0;
}

void table_argument(lua_State* L, const Argument& argument) {
  if (!lua_istable(L, argument.index)) wrong_argument(L, argument, "a table");
}

void check_callable(lua_State* L, int index, const char* who) {
  if (lua_isfunction(L, index)) return;
  if (test_tensor(L, index) || is_guarded(L, index) ||
      luaL_getmetafield(L, index, "__call") == LUA_TNIL)  // a tensor's own only says that it cannot
    throw InputError(std::string(who) + ": expected a function, got " + describe(L, index));
  lua_pop(L, 1);
}

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
