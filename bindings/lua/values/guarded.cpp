#include "bindings/lua/values/guarded.h"

#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/userdata.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/tensor.h"

namespace triage::lua {
namespace {

const char guarded_metatable = 0;  // its address is the registry key

/// Keys of the two parts, which no index of a script reaches: a guarded tensor stays what it is.
const char data_key = 0, flags_key = 0;

}  // namespace

bool is_guarded(lua_State* L, int index) {
  return lua_type(L, index) == LUA_TTABLE && has_metatable(L, index, &guarded_metatable);
}

bool any_guarded(lua_State* L, int first) {
  for (int i = first; i <= lua_gettop(L); ++i)
    if (is_guarded(L, i)) return true;
  return false;
}

void push_guarded(lua_State* L) {
  reserve(L, 0, "too many tensors");
  lua_createtable(L, 0, 2);
  lua_insert(L, -3);
  lua_rawsetp(L, -3, &flags_key);
  lua_rawsetp(L, -2, &data_key);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &guarded_metatable);
  lua_setmetatable(L, -2);
}

void push_data(lua_State* L, int index) {
  if (!is_guarded(L, index)) return lua_pushvalue(L, index);
  lua_rawgetp(L, index, &data_key);
  if (!test_tensor(L, -1)) throw std::invalid_argument("the data of a guarded tensor is " + describe(L, -1));
}

at::Tensor flags_of(lua_State* L, int index) {
  lua_rawgetp(L, index, &flags_key);
  const at::Tensor found = check_tensor(L, -1);
  lua_pop(L, 1);
  return found;
}

void replace_by_data(lua_State* L, int index) {
  index = lua_absindex(L, index);
  push_data(L, index);
  lua_replace(L, index);
}

void set_guarded_metatable(lua_State* L) { lua_rawsetp(L, LUA_REGISTRYINDEX, &guarded_metatable); }

}  // namespace triage::lua
