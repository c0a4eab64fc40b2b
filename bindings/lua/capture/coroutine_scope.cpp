// A registry table with weak keys: coroutine -> what its scopes say (the lowest bits) and how many it has open.
#include "bindings/lua/capture/coroutine_scope.h"

#include "bindings/lua/stack.h"
#include "bindings/lua/state.h"
#include "bindings/lua/userdata.h"

namespace triage::lua {
namespace {

using capture::OnGraphBreak;

const char kScopes = 0;  // its address is the registry key
constexpr int kBitsOfThen = 2;

}  // namespace

CoroutineScope::CoroutineScope(lua_State* L, int index)
    : L_(L), before_(OnGraphBreak::current()), open_before_(context(L).break_scopes) {
  push_weak_table(L, &kScopes);
  lua_pushvalue(L, index);
  const bool known = lua_isthread(L, -1) && lua_rawget(L, -2) == LUA_TNUMBER;
  const lua_Integer scopes = known ? lua_tointeger(L, -1) : 0;
  lua_pop(L, 2);
  int& open = context(L).break_scopes;
  open = static_cast<int>(scopes >> kBitsOfThen);
  if (open > 0) OnGraphBreak::set(static_cast<OnGraphBreak::Then>(scopes & ((1 << kBitsOfThen) - 1)));
}

CoroutineScope::~CoroutineScope() {
  OnGraphBreak::set(before_);
  context(L_).break_scopes = open_before_;
}

void CoroutineScope::suspend(int index) const {
  reserve(L_, 0, "coroutines");
  lua_pushvalue(L_, index);
  if (lua_isthread(L_, -1)) {
    push_weak_table(L_, &kScopes);
    lua_insert(L_, -2);
    const int open = context(L_).break_scopes;
    const lua_Integer scopes =
        (static_cast<lua_Integer>(open) << kBitsOfThen) | static_cast<lua_Integer>(OnGraphBreak::current());
    open > 0 ? lua_pushinteger(L_, scopes) : lua_pushnil(L_);
    lua_rawset(L_, -3);
  }
  lua_pop(L_, 1);
}
}  // namespace triage::lua
