#include "bindings/lua/capture/unwinding.h"

#include "bindings/lua/sandbox/side_effects.h"
#include "bindings/lua/stack.h"
#include "bindings/lua/userdata.h"
#include "runtime/capture/branch_guard.h"

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

bool is_unwinding() { return UntakenBranch::left() || capture::OutsideBranches::given_up(); }

/// Upvalues: the handler; whether it was set inside of the branch.
int shielded(lua_State* L) {
  const bool inside = lua_toboolean(L, lua_upvalueindex(2));
  lua_settop(L, 1);
  if (is_unwinding() || (UntakenBranch::active() && !inside) || was_handled(L, 1)) return 1;
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, 1, 1);
  return 1;
}

/// Pushes the handler of the innermost xpcall around, where no pcall is inside of it; false where something else catches.
/// Nothing does where true comes without a handler (nil).
bool push_handler_around(lua_State* L) {
  lua_Debug frame;
  for (int level = 1; lua_getstack(L, level, &frame); ++level) {
    lua_getinfo(L, "f", &frame);
    const lua_CFunction function = lua_tocfunction(L, -1);
    lua_pop(L, 1);
    if (!is_protected_call(function)) continue;
    if (!lua_getlocal(L, &frame, 2)) return false;  // of xpcall its handler
    if (lua_tocfunction(L, -1) == shielded) return true;
    lua_pop(L, 1);
    return false;
  }
  const bool main = lua_pushthread(L) == 1;
  lua_pop(L, 1);
  if (main) lua_pushnil(L);
  return main;
}

/// Upvalue: the handler of the host.
int handle_in_place(lua_State* L) {
  lua_settop(L, 1);
  if (is_unwinding() || UntakenBranch::active() || !push_handler_around(L)) return 1;
  if (lua_isnil(L, 2)) lua_copy(L, lua_upvalueindex(1), 2);
  lua_insert(L, 1);
  lua_call(L, 1, 1);
  lua_pushvalue(L, 1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &kHandled);
  return 1;
}

}  // namespace

int call_and_hand_on(lua_State* L, int arguments, lua_CFunction host_handler) {
  reserve(L, 0, "message handler");
  const int handler = lua_gettop(L) - arguments;
  lua_pushcfunction(L, host_handler);
  lua_pushcclosure(L, handle_in_place, 1);
  lua_insert(L, handler);
  const int status = lua_pcall(L, arguments, LUA_MULTRET, handler);
  lua_remove(L, handler);
  reserve(L, 0, "too many results");
  return status;
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
  if (!lua_checkstack(L, 8)) return;
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

void shield_handler(lua_State* L, int index) {
  index = lua_absindex(L, index);
  lua_pushvalue(L, index);
  lua_pushboolean(L, UntakenBranch::active());
  lua_pushcclosure(L, shielded, 2);
  lua_replace(L, index);
}

}  // namespace triage::lua
