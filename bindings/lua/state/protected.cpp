#include "bindings/lua/state/protected.h"

#include "bindings/lua/state/unwinding.h"
#include "runtime/flags/forms.h"

#include <new>
#include <type_traits>

namespace triage::lua {

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

const char forms_key = 0;  // its address is the registry key

flags::KnownForms& forms_of(lua_State* L) {
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &forms_key) == LUA_TNIL) {
    lua_pop(L, 1);
    new (lua_newuserdatauv(L, sizeof(flags::KnownForms), 0)) flags::KnownForms;
    static_assert(std::is_trivially_destructible_v<flags::KnownForms>);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &forms_key);
  }
  auto& forms = *static_cast<flags::KnownForms*>(lua_touserdata(L, -1));
  lua_pop(L, 1);
  return forms;
}

}  // namespace

KnownFormsOf::KnownFormsOf(lua_State* L) : before_(flags::KnownForms::enter(&forms_of(L))) {}
KnownFormsOf::~KnownFormsOf() { flags::KnownForms::enter(before_); }

int keep_traceback(lua_State* L) {
  if (was_handled(L, 1)) return 1;  // where it was raised: the stack was whole there
  std::string& traceback = context(L).traceback;
  traceback.clear();
  if (!runs_script(L)) return 1;
  luaL_traceback(L, L, nullptr, 1);
  traceback = lua_tostring(L, -1);
  lua_pop(L, 1);
  return 1;
}

}  // namespace triage::lua
