#include "bindings/lua/state/unwinding.h"

#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/state/userdata.h"
#include "runtime/capture/recording/branch_guard.h"

#include <utility>

namespace triage::lua {
namespace {

using capture::UntakenBranch;

const char kNothing = 0;  // its address: registry key of what stands where nothing is left to close

int close_nothing(lua_State*) { return 0; }

void push_nothing(lua_State* L) {
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &kNothing) != LUA_TNIL) return;
  lua_pop(L, 1);
  lua_newuserdatauv(L, 0, 0);
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, close_nothing);
  lua_setfield(L, -2, "__close");
  lua_setmetatable(L, -2);
  lua_pushvalue(L, -1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &kNothing);
}

/// Does code of the script close the value on top?
bool closes_by_script(lua_State* L) {
  if (luaL_getmetafield(L, -1, "__close") == LUA_TNIL) return false;
  const bool by_script = !lua_iscfunction(L, -1);
  lua_pop(L, 1);
  return by_script;
}

const char kHandled = 0;  // its address: registry key of the error that a handler has seen already

}  // namespace

void note_handled(lua_State* L, int index) {
  lua_pushvalue(L, index);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &kHandled);
}

bool was_handled(lua_State* L, int index) {
  index = lua_absindex(L, index);
  const bool was = lua_rawgetp(L, LUA_REGISTRYINDEX, &kHandled) != LUA_TNIL && lua_rawequal(L, -1, index);
  lua_pop(L, 1);
  if (!was) return false;
  lua_pushnil(L);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &kHandled);
  return true;
}

int stack_depth(lua_State* L) {
  lua_Debug frame;
  int below = 0, above = 1;  // finding a level takes as long as it is deep: not one after the other
  while (lua_getstack(L, above, &frame)) below = std::exchange(above, 2 * above);
  while (below < above) {
    const int middle = below + (above - below) / 2;
    lua_getstack(L, middle, &frame) ? below = middle + 1 : above = middle;
  }
  return below;
}

void forget_closers(lua_State* L) {
  if (context(L).sandboxed || !lua_checkstack(L, 8)) return;  // what closes a policy's values asks for itself
  lua_Debug frame;
  const int unwound = stack_depth(L) - UntakenBranch::frames_kept();
  for (int level = 0; level < unwound && lua_getstack(L, level, &frame); level++) {
    for (int i = 1; lua_getlocal(L, &frame, i); i++) {
      if (closes_by_script(L)) {
        push_nothing(L);
        lua_setlocal(L, &frame, i);
      }
      lua_pop(L, 1);
    }
  }
}

}  // namespace triage::lua
