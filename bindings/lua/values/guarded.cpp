#include "bindings/lua/values/guarded.h"

#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/userdata.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/tensor.h"

namespace triage::lua {
namespace {

const char guarded_metatable = 0;  // its address is the registry key

/// Whatever the metatable says: a script may have written to the fields.
void push_field(lua_State* L, int index, const char* name) {
  index = lua_absindex(L, index);
  lua_pushstring(L, name);
  lua_rawget(L, index);
}

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
  lua_setfield(L, -3, "flags");
  lua_setfield(L, -2, "data");
  lua_rawgetp(L, LUA_REGISTRYINDEX, &guarded_metatable);
  lua_setmetatable(L, -2);
}

void push_data(lua_State* L, int index) {
  if (!is_guarded(L, index)) return lua_pushvalue(L, index);
  push_field(L, index, "data");
  if (!test_tensor(L, -1))
    throw std::invalid_argument("the field `data` of a guarded tensor is " + describe(L, -1) +
                                ", not a tensor; make another with guard(z, f)");
}

at::Tensor flags_of(lua_State* L, int index) {
  push_field(L, index, "flags");
  const at::Tensor* const flags = test_tensor(L, -1);
  if (!flags || flags->dim() != 2)
    throw std::invalid_argument("the field `flags` of a guarded tensor is " + describe(L, -1) +
                                ", not flags of shape (N, words); make another with guard(z, f)");
  const at::Tensor found = *flags;
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
