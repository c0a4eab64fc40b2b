// A wrapper is a closure over the upvalues of the old function, in their places, and behind them a mark and the
// function: so the old one finds its upvalues when it runs in the wrapper's frame. (Upvalues are copied: a function
// that assigns to its own would not see that again. No function of Lua's library does.)
#include "bindings/lua/semantics/wrapping.h"

#include "bindings/lua/semantics/tensor_semantics.h"
#include "bindings/lua/state/stack.h"

namespace triage::lua {
namespace {

const char kMark = 0;

int original_index(lua_State* L) {
  int index = 1;
  while (lua_touserdata(L, lua_upvalueindex(index)) != &kMark) index++;
  return lua_upvalueindex(index + 1);
}

}  // namespace

void wrap_function(lua_State* L, lua_CFunction wrapper) {
  if (!lua_iscfunction(L, -1)) return;
  const int original = lua_gettop(L);
  int upvalues = 0;
  bool wrapped = false;
  while (lua_getupvalue(L, original, upvalues + 1)) {
    wrapped |= lua_touserdata(L, -1) == &kMark;
    upvalues++;
  }
  if (wrapped) return lua_settop(L, original);  // a second mark would never be found
  lua_pushlightuserdata(L, const_cast<char*>(&kMark));
  lua_pushvalue(L, original);
  lua_pushcclosure(L, wrapper, upvalues + 2);
  lua_replace(L, original);
}

void wrap_library_function(lua_State* L, const char* name, lua_CFunction wrapper) {
  lua_getfield(L, -1, name);
  wrap_function(L, wrapper);
  if (lua_iscfunction(L, -1))
    lua_setfield(L, -2, name);
  else
    lua_pop(L, 1);
}

int run_original(lua_State* L) {
  for (int i = lua_gettop(L); i > 0; i--) specialize(L, i);
  return hand_on(L);
}

int hand_on(lua_State* L) {
  const int results = lua_tocfunction(L, original_index(L))(L);
  reserve(L, 0, "too many results");
  return results;
}

}  // namespace triage::lua
