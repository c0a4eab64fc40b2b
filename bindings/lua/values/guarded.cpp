#include "bindings/lua/values/guarded.h"

#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/userdata.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/tensor.h"

namespace triage::lua {
namespace {

const char guarded_metatable = 0;  // its address is the registry key

enum Part : int { data_part = 1, flags_part };  // numbers of user values

}  // namespace

bool is_guarded(lua_State* L, int index) {
  return lua_type(L, index) == LUA_TUSERDATA && has_metatable(L, index, &guarded_metatable);
}

const char* kind_of(lua_State* L, int index) {
  return is_guarded(L, index) ? "guarded tensor" : luaL_typename(L, index);
}

bool any_guarded(lua_State* L, int first) {
  for (int i = first; i <= lua_gettop(L); ++i)
    if (is_guarded(L, i)) return true;
  return false;
}

void push_guarded(lua_State* L) {
  const at::Tensor *const data = test_tensor(L, -2), *const flags = test_tensor(L, -1);
  if (!data || !flags || data->dim() == 0 || flags->dim() != 2 || data->size(0) != flags->size(0))
    throw std::invalid_argument(
        "a guarded tensor has flags for each of its rows; got " + describe(L, -2) + " with flags " + describe(L, -1) +
        ". An operator that works in place on x.data or x.flags may have changed their shape; use one that does not");
  reserve(L, 0, "too many tensors");
  lua_newuserdatauv(L, 0, flags_part);
  lua_insert(L, -3);
  lua_setiuservalue(L, -3, flags_part);
  lua_setiuservalue(L, -2, data_part);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &guarded_metatable);
  lua_setmetatable(L, -2);
}

const at::Tensor* find_data(lua_State* L, int index) {
  if (!is_guarded(L, index)) return test_tensor(L, index);
  lua_getiuservalue(L, index, data_part);
  const at::Tensor* const data = test_tensor(L, -1);  // the guarded tensor holds it
  lua_pop(L, 1);
  return data;
}

void push_data(lua_State* L, int index) {
  if (!is_guarded(L, index)) return lua_pushvalue(L, index);
  lua_getiuservalue(L, index, data_part);
  if (!test_tensor(L, -1)) throw std::invalid_argument("the data of a guarded tensor is " + describe(L, -1));
}

void push_flags(lua_State* L, int index) { lua_getiuservalue(L, index, flags_part); }

at::Tensor flags_of(lua_State* L, int index) {
  push_flags(L, index);
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
