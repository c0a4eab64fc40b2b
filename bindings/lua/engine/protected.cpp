#include "bindings/lua/engine/protected.h"

#include "bindings/lua/capture/unwinding.h"

namespace triage::lua {

std::string& last_traceback() {
  thread_local std::string traceback;
  return traceback;
}

namespace {

/// Whether a frame is of a script: frames of C alone tell nobody anything.
bool runs_script(lua_State* L) {
  lua_Debug frame;
  for (int level = 1; lua_getstack(L, level, &frame); ++level) {
    lua_getinfo(L, "l", &frame);
    if (frame.currentline > 0) return true;
  }
  return false;
}

}  // namespace

int keep_traceback(lua_State* L) {
  if (was_handled(L, 1)) return 1;  // where it was raised: the stack was whole there
  last_traceback().clear();
  if (!runs_script(L)) return 1;
  luaL_traceback(L, L, nullptr, 1);
  last_traceback() = lua_tostring(L, -1);
  lua_pop(L, 1);
  return 1;
}

}  // namespace triage::lua
