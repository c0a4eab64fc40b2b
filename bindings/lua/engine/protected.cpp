#include "bindings/lua/engine/protected.h"

namespace triage::lua {

std::string& last_traceback() {
  thread_local std::string traceback;
  return traceback;
}

int keep_traceback(lua_State* L) {
  luaL_traceback(L, L, nullptr, 1);
  last_traceback() = lua_tostring(L, -1);
  lua_pop(L, 1);
  return 1;
}

}  // namespace triage::lua
