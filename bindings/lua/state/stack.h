#pragma once
#include <lua.hpp>

#include <algorithm>
#include <cstddef>

/// Lua's stack does not grow by itself: a push without room behind it writes into memory that is not the stack's. A C
/// function begins with room for LUA_MINSTACK (20) values behind its arguments. Whoever pushes more than that, a number
/// that the script or the host chooses above all, asks for it here first; so does each level of a recursion. tests run
/// on a Lua that checks every push (`./dev sanitize lua`).
namespace triage::lua {

/// Room for `count` values, and behind them for LUA_MINSTACK more, as at the beginning of a function. Raises the Lua
/// error "stack overflow (`what`)" where there is none.
inline void reserve(lua_State* L, size_t count, const char* what) {
  constexpr size_t most = 1'000'000;  // more than Lua's stack ever holds
  luaL_checkstack(L, static_cast<int>(std::min(count, most)) + LUA_MINSTACK, what);
}

/// lua_call for all results, however many: it leaves no room behind them, so this asks for it.
inline void call_for_all(lua_State* L, int arguments) {
  lua_call(L, arguments, LUA_MULTRET);
  reserve(L, 0, "too many results");
}

}  // namespace triage::lua
