#include "bindings/lua/scopes.h"

#include "bindings/lua/state.h"
#include "bindings/lua/userdata.h"

#include <string_view>
#include <vector>

namespace triage::lua {
namespace {

const char scope_metatable = 0;  // its address is the registry key

struct Scope {
  std::function<void()> end;
};

Scope* test_scope(lua_State* L, int index) { return test_userdata<Scope>(L, index, &scope_metatable); }

void end_once(Scope& scope) {
  if (const auto end = std::exchange(scope.end, nullptr)) end();
}

int close_scope(lua_State* L) {
  if (Scope* const scope = test_scope(L, 1)) end_once(*scope);
  return 0;
}

void make_scope_metatable(lua_State* L) {
  static const luaL_Reg methods[] = {
      {"__close", guarded<close_scope>}, {"__gc", guarded<free_userdata<Scope, scope_metatable>>}, {nullptr, nullptr}};
  make_metatable(L, &scope_metatable, "scope", methods);
}

/// Of one function on the stack of a coroutine, in the order in which they were opened.
std::vector<Scope*> open_scopes(lua_State* coroutine, const lua_Debug& frame) {
  std::vector<Scope*> open;
  for (int i = 1; const char* const name = lua_getlocal(coroutine, &frame, i); ++i) {
    const bool left_over = std::string_view(name) == "(temporary)";  // no variable: whatever was there last
    if (Scope* const scope = left_over ? nullptr : test_scope(coroutine, -1)) open.push_back(scope);
    lua_pop(coroutine, 1);
  }
  return open;
}

}  // namespace

std::function<void()>& push_scope(lua_State* L) {
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &scope_metatable) == LUA_TNIL) make_scope_metatable(L);
  lua_pop(L, 1);
  return push_userdata(L, Scope{}, &scope_metatable).end;
}

int call_in_scope(lua_State* L, int function) {
  lua_insert(L, function);
  lua_toclose(L, function);
  lua_call(L, lua_gettop(L) - function - 1, LUA_MULTRET);
  lua_closeslot(L, function);
  return lua_gettop(L) - function;
}

void end_scopes(lua_State* coroutine) {
  if (!lua_checkstack(coroutine, 4)) return;
  lua_Debug frame;
  for (int level = 0; lua_getstack(coroutine, level, &frame); ++level) {
    const std::vector<Scope*> open = open_scopes(coroutine, frame);
    for (auto scope = open.rbegin(); scope != open.rend(); ++scope) end_once(**scope);
  }
}

}  // namespace triage::lua
