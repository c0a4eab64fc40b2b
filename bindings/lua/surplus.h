#pragma once
#include <lua.hpp>

#include <cstddef>

/// Arguments that a function does not take. Lua drops them, options among them: what was meant would be silently ignored.
namespace triage::lua {

/// Refuses arguments beyond `most`, of which a method's self is one: they would be ignored, and options among them. nil is none.
void at_most(lua_State* L, int most, const char* function);

/// A function that refuses more arguments than it takes, for which it is registered so.
struct LimitedFunction {
  const char* name;
  lua_CFunction function;
  int most;
};
void push_limited(lua_State* L, const char* name, lua_CFunction function, int most);
/// luaL_setfuncs for such: `prefix` and the name are what messages call them.
void set_limited(lua_State* L, const char* prefix, const LimitedFunction* functions, size_t count);
template <size_t count>
void set_limited(lua_State* L, const char* prefix, const LimitedFunction (&functions)[count]) {
  set_limited(L, prefix, functions, count);
}

}  // namespace triage::lua
