#pragma once
#include "bindings/lua/state/state.h"
#include "runtime/capture/c_locale.h"
#include "runtime/flags/composites/known_rows.h"

#include <lua.hpp>

#include <string>
#include <type_traits>

namespace triage::flags {
class KnownForms;
}

namespace triage::lua {

/// Message handler for lua_pcall: keeps the error value as it is, and the traceback in Context::traceback.
int keep_traceback(lua_State* L);

/// While alive, questions to flags ask what the script of `L` knows (runtime/flags/forms.h).
class KnownFormsOf {
 public:
  explicit KnownFormsOf(lua_State* L);
  ~KnownFormsOf();
  KnownFormsOf(const KnownFormsOf&) = delete;
  KnownFormsOf& operator=(const KnownFormsOf&) = delete;

 private:
  flags::KnownForms* before_;
};

template <typename Body>
int run_body(lua_State* L) {
  auto* body = static_cast<Body*>(lua_touserdata(L, 1));
  lua_settop(L, 0);
  (*body)(L);
  return 0;
}

/// Runs `body(L)` inside lua_pcall, so that no Lua error and no Lua-triggered panic can leave it. Throws what failed as
/// C++ (see `rethrow`). The stack is as before when it returns.
template <typename Body>
void in_protected_call(lua_State* L, Body&& body) {
  const capture::CLocale numbers;
  const KnownFormsOf forms(L);
  const flags::KnownRows rows(flags::KnownRows::Writes::versioned);
  int top = lua_gettop(L);
  lua_pushcfunction(L, keep_traceback);
  lua_pushcfunction(L, guarded<run_body<std::remove_reference_t<Body>>>);
  lua_pushlightuserdata(L, &body);
  context(L).traceback.clear();
  if (lua_pcall(L, 1, 0, top + 1) != LUA_OK) {
    struct StackRestore {
      lua_State* L;
      int top;
      ~StackRestore() { lua_settop(L, top); }
    } restore{L, top};
    rethrow(L, -1, context(L).traceback);
  }
  lua_settop(L, top);
}

}  // namespace triage::lua
