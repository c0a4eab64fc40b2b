// The metatable of guarded tensors: fields, methods, indexing by samples. Operators are those of tensors.
#include "bindings/lua/state/stack.h"
#include "bindings/lua/tensors/calls/call.h"
#include "bindings/lua/tensors/calls/guarded_call.h"
#include "bindings/lua/tensors/types/indexing.h"
#include "bindings/lua/tensors/types/operators.h"
#include "bindings/lua/tensors/types/tensor_type.h"
#include "bindings/lua/values/constants.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/guarded.h"
#include "bindings/lua/values/tensor.h"

#include <ATen/ATen.h>
#include <triage/flags.h>

#include <cstring>
#include <string>
#include <string_view>

namespace triage::lua {
namespace {

void check_guarded(lua_State* L, int index) {
  if (!is_guarded(L, index))
    throw std::invalid_argument("expected a guarded tensor, got " + describe(L, index) + "; make one with guard(x)");
}

/// A method that is no operator, on the data: upvalue 1. What gives a tensor of the same sizes is a conversion (`to`,
/// `float`), and the flags stay with it, on its device.
int method_on_data(lua_State* L) {
  check_guarded(L, 1);
  const at::Tensor flags = flags_of(L, 1);
  push_data(L, 1);
  const at::Tensor data = check_tensor(L, -1);
  lua_pop(L, 1);
  const int count = lua_gettop(L);
  reserve(L, static_cast<size_t>(count) + 1, "too many arguments");
  lua_pushvalue(L, lua_upvalueindex(1));
  for (int i = 1; i <= count; ++i) push_data(L, i);
  lua_call(L, count, LUA_MULTRET);
  const int results = lua_gettop(L) - count;
  if (results == 0) return 0;
  const at::Tensor* const made = test_tensor(L, -results);
  if (!made || results > 1) return results;
  if (made->is_same(data)) {
    lua_pushvalue(L, 1);
    return 1;
  }
  guard_result(L, flags);
  return 1;
}

/// x.name: an operator takes the guarded tensor itself.
int named(lua_State* L) {
  const std::string_view name = lua_tostring(L, 2);
  if (name == "T" || name == "mT") {
    lua_settop(L, 1);
    return call_operator(L, *find_operator(name == "T" ? "aten::numpy_T" : "aten::mT"), 1, 1, false);
  }
  if (name == "flags") {
    push_flags(L, 1);
    return 1;
  }
  push_data(L, 1);
  if (name == "data") return 1;
  lua_pushvalue(L, 2);
  lua_gettable(L, -2);
  if (lua_isfunction(L, -1) && !is_operator_function(L, -1) && !is_comparison(L, -1))
    lua_pushcclosure(L, guarded<method_on_data>, 1);
  return 1;
}

[[noreturn]] void refuse_index(lua_State* L, int index) {
  throw std::invalid_argument(
      "x[...] of a guarded tensor: the first index chooses samples, and the flags follow where it is {from, to, step}, "
      "\":\", "
      "a mask of shape (N,) or a list of samples, and no other index is a tensor; got " +
      describe(L, index) + ". Go on without flags: local z, f = unguard(x)");
}

/// Pushes the index of the samples, which is at `position`, or the first of the list there.
void push_first_index(lua_State* L, int position) {
  if (lua_type(L, position) != LUA_TTABLE) return lua_pushvalue(L, position);
  const auto count = static_cast<lua_Integer>(lua_rawlen(L, position));
  for (lua_Integer i = 2; i <= count; ++i) {
    lua_rawgeti(L, position, i);
    if (test_tensor(L, -1)) refuse_index(L, lua_gettop(L));
    lua_pop(L, 1);
  }
  lua_rawgeti(L, position, 1);
}

/// x[...]: the flags of the samples that the first index chooses.
int samples(lua_State* L) {
  push_data(L, 1);
  const at::Tensor data = check_tensor(L, -1);
  push_first_index(L, 2);
  const int first = lua_gettop(L);
  const at::Tensor* const tensor = test_tensor(L, first);
  const bool all = is_text(L, first, ":");
  const bool some = lua_type(L, first) == LUA_TTABLE || (tensor && tensor->dim() == 1);
  if (!all && !some) refuse_index(L, first);
  push_tensor(L, index(L, data, 2));
  const int result = lua_gettop(L);
  at::Tensor flags = flags_of(L, 1);
  if (!all) {  // {":"} or {index}: one index, for the rows
    lua_createtable(L, 1, 0);
    lua_pushvalue(L, first);
    lua_rawseti(L, -2, 1);
    flags = index(L, flags, lua_gettop(L));
  }
  lua_settop(L, result);
  push_tensor(L, flags);
  push_guarded(L);
  return 1;
}

int guarded_index(lua_State* L) {
  check_guarded(L, 1);
  const bool is_name =
      lua_type(L, 2) == LUA_TSTRING && !is_text(L, 2, ":") && !is_text(L, 2, "...") && !is_text(L, 2, "new");
  return is_name ? named(L) : samples(L);
}

/// x[mask] = 0 writes into the data; the samples keep their flags.
int guarded_newindex(lua_State* L) {
  check_guarded(L, 1);
  if (is_text(L, 2, "flags") || is_text(L, 2, "data"))
    throw std::invalid_argument(
        "the flags and the data of a guarded tensor stay what they are; make another: guard(x.data, f)");
  if (is_guarded(L, 3))
    throw std::invalid_argument(
        "x[...] = y: y is guarded, and its flags cannot follow it into samples of x; use torch.where(mask, y, x)");
  push_data(L, 1);
  lua_pushvalue(L, 2);
  lua_pushvalue(L, 3);
  lua_settable(L, -3);
  return 0;
}

int guarded_len(lua_State* L) {
  check_guarded(L, 1);
  replace_by_data(L, 1);
  luaL_getmetafield(L, 1, "__len");
  return lua_tocfunction(L, -1)(L);  // not called: it asks who calls it
}

int guarded_tostring(lua_State* L) {
  check_guarded(L, 1);
  push_data(L, 1);
  const std::string text = luaL_tolstring(L, -1, nullptr);
  lua_pushstring(L, (text + "\n" + flags::repr(flags_of(L, 1), {.codes = context(L).codes})).c_str());
  return 1;
}

int refuse_concat(lua_State* L) {
  throw std::invalid_argument("`..` joins strings, and one side is " + describe(L, is_guarded(L, 1) ? 1 : 2) +
                              "; write tostring(x), or torch.cat({a, b}, dim) to join tensors");
}

/// What Lua's own comparison, outside of rewritten code, would make a boolean of.
int refuse_comparison(lua_State*) {
  throw std::invalid_argument("a comparison of guarded tensors: write x:lt(y), x:le(y) or x:eq(y)");
}

int refuse_call(lua_State*) {
  throw std::invalid_argument(
      "a tensor cannot be called like a function; index it with x[i], or call a method as x:name(...)");
}

}  // namespace

void open_guarded(lua_State* L) {
  static const luaL_Reg functions[] = {{"__index", guarded<guarded_index>},  {"__newindex", guarded<guarded_newindex>},
                                       {"__len", guarded<guarded_len>},      {"__tostring", guarded<guarded_tostring>},
                                       {"__concat", guarded<refuse_concat>}, {"__call", guarded<refuse_call>},
                                       {"__lt", guarded<refuse_comparison>}, {"__le", guarded<refuse_comparison>},
                                       {"__eq", guarded<refuse_comparison>}, {nullptr, nullptr}};
  luaL_newlib(L, functions);
  for (const char* key : {"__name", "__metatable"}) {
    lua_pushliteral(L, "GuardedTensor");
    lua_setfield(L, -2, key);
  }
  add_metamethods(L);
  set_guarded_metatable(L);
}

}  // namespace triage::lua
