#include "bindings/lua/semantics/natural_functions.h"

#include <string>

#include "bindings/lua/rewriter/chain_fields.h"
#include "bindings/lua/semantics/intrinsics.h"
#include "bindings/lua/semantics/tensor_semantics.h"
#include "bindings/lua/state/effects.h"
#include "bindings/lua/state/stack.h"

namespace triage::lua {
namespace {

namespace chain = rewriter::chain;

const char kChains = 0;  // its address is the registry key of their metatable

lua_Integer get_integer(lua_State* L, int index, int field) {
  lua_rawgeti(L, index, field);
  const lua_Integer value = lua_tointeger(L, -1);
  lua_pop(L, 1);
  return value;
}

void set_integer(lua_State* L, int index, int field, lua_Integer value) {
  lua_pushinteger(L, value);
  lua_rawseti(L, index, field);
}

/// Ends the `if` where an error, or a coroutine that was given up, did not come to its end. Argument 2: the error. What
/// a call left that ran out of its budget is forgotten before the next one (forget_chains).
int close_chain(lua_State* L) {
  if (has_expired(L)) return 0;
  lua_settop(L, 2);
  if (lua_type(L, 1) != LUA_TTABLE || lua_rawgeti(L, 1, chain::masks) == LUA_TNIL) return 0;
  const bool shares = lua_rawgeti(L, 1, chain::restore) != LUA_TNIL, runs = lua_rawgeti(L, 1, chain::scope) != LUA_TNIL;
  if (!shares && !runs) return 0;
  if (shares) bump_epoch(L);
  lua_settop(L, 2);
  push_library_function(L, "abandon");
  lua_insert(L, 1);
  lua_call(L, 2, 0);
  return 0;
}

void set_metatable(lua_State* L) {
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &kChains) == LUA_TNIL) {
    lua_pop(L, 1);
    lua_createtable(L, 0, 2);
    lua_pushcfunction(L, close_chain);
    lua_setfield(L, -2, "__close");
    lua_pushliteral(L, "chain");
    lua_setfield(L, -2, "__metatable");
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &kChains);
  }
  lua_setmetatable(L, -2);
}

int raise_here(lua_State* L, lua_Integer position, const std::string& message) {
  push_where(L, 1, position, false);
  lua_pushlstring(L, message.data(), message.size());
  lua_concat(L, 2);
  return lua_error(L);
}

/// The value at `index` as Lua's condition: a condition on symbols is read.
bool plain_truth(lua_State* L, int index) {
  if (lua_type(L, index) == LUA_TUSERDATA) specialize(L, index);
  return lua_toboolean(L, index);
}

/// A number in a tensor as a condition, of the line that runs. A tensor of several says that there is one, as in Lua.
void take_as_mask(lua_State* L, int index) {
  if (!is_number_tensor(L, index) || !has_one_element(L, index)) return;
  index = lua_absindex(L, index);
  push_where(L, 1, 0, false);
  replace_by_mask(L, index, lua_tostring(L, -1));
  lua_pop(L, 1);
}

}  // namespace

/// Arguments: names of the variables, line, the chain around it, and where functions share some of the variables, a
/// function that assigns to those.
int natural_chain(lua_State* L) {
  lua_settop(L, 4);
  lua_createtable(L, 5, 0);
  set_integer(L, 5, chain::arm, 0);
  lua_insert(L, 1);
  for (const int field : {chain::restore, chain::outer, chain::line, chain::names})
    lua_rawseti(L, 1, field);  // from the top
  set_metatable(L);
  return 1;
}

/// Arguments: chain, branch, condition. Whether the branch is to run now, as in plain Lua.
int natural_decide(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 3);
  take_as_mask(L, 3);
  if (is_mask(L, 3)) {
    push_library_function(L, "ask");
    lua_insert(L, 1);
    lua_call(L, 3, 0);
    lua_pushboolean(L, false);
    return 1;
  }
  bool runs = plain_truth(L, 3);
  if (runs && lua_rawgeti(L, 1, chain::masks) != LUA_TNIL) {  // after the branches of the masks
    lua_pushvalue(L, 2);
    lua_rawseti(L, 1, chain::taken);
    set_integer(L, 1, chain::arm, -1);
    runs = false;
  }
  lua_pushboolean(L, runs);
  return 1;
}

/// Arguments: chain, what its variables hold. Returns what they are to hold, for the next branch or behind the `if`.
int natural_next(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  push_library_function(L, "advance");
  lua_insert(L, 1);
  call_for_all(L, lua_gettop(L) - 1);
  return lua_gettop(L);
}

int open_branches(lua_State* L, int index, int levels) {
  int open = 0;
  lua_pushvalue(L, index);
  for (; levels > 0 && lua_type(L, -1) == LUA_TTABLE; levels--) {
    open += get_integer(L, -1, chain::arm) > 0;
    lua_rawgeti(L, -1, chain::outer);
    lua_remove(L, -2);
  }
  lua_pop(L, 1);
  return open;
}

/// Arguments: chain, how many chains the statement leaves, its keyword, position.
int natural_leave(lua_State* L) {
  if (open_branches(L, 1, static_cast<int>(lua_tointeger(L, 2))) == 0) return 0;
  const std::string keyword = lua_tostring(L, 3);
  std::string hint = "Assign to a variable in the branch and return it after the `if`.";
  if (keyword != "return")
    hint = "Run the whole loop for every sample, and select the samples that change with `if` or torch.where.";
  return raise_here(
      L, lua_tointeger(L, 4),
      "`" + keyword +
          "` in a branch of an `if` whose condition is a mask: every branch runs, each for its own samples, " +
          "so no branch can leave for all samples. " + hint);
}

/// Arguments: bound or condition of a loop, its keyword, position. Returns the value as Lua takes it.
int natural_loop(lua_State* L) {
  if (lua_type(L, 1) == LUA_TUSERDATA) specialize(L, 1);
  const std::string keyword = lua_tostring(L, 2);
  const bool counts = keyword == "for";
  if (is_tensor(L, 1)) {
    const std::string what = counts ? "a tensor as a bound of `for`"
                                    : (is_mask(L, 1) ? "a mask" : "a tensor of numbers") +
                                          std::string(" as the condition of `") + keyword + "`";
    const std::string hint =
        counts ? "Use a number (x:size(d), or x:item(), which reads the value), or compute all samples at once."
               : "Loop a fixed number of times, with an `if` inside; or read one boolean for the batch: "
                 "mask:any():item().";
    return raise_here(L, lua_tointeger(L, 3), what + ": each sample could need another number of iterations. " + hint);
  }
  lua_settop(L, 1);
  return 1;
}

/// Arguments: the function's table, slot (negative: of `or`), operand, true for the first of a chain, true where the
/// chain is a condition. Returns the operand as Lua's operator shall see it: for a mask what makes it go on. In `x or
/// y` as a value, a tensor of numbers stands for itself.
int natural_keep(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  const lua_Integer slot = lua_tointeger(L, 2);
  if (lua_toboolean(L, 4)) {
    lua_pushnil(L);
    lua_rawseti(L, 1, slot);
  }
  const bool is_condition = slot > 0 || lua_toboolean(L, 5);
  lua_settop(L, 3);
  if (is_condition) take_as_mask(L, 3);
  const bool mask = is_mask(L, 3);
  if (!mask) specialize(L, 3);
  const bool began = lua_rawgeti(L, 1, slot) != LUA_TNIL;  // at 4
  if (lua_isboolean(L, 3)) {  // decides for all samples, or changes nothing: Lua's operator knows
    lua_settop(L, 3);
    return 1;
  }
  if (began) {
    push_library_function(L, "combine");
    for (const int argument : {2, 4, 3}) lua_pushvalue(L, argument);
    lua_call(L, 3, 1);
    lua_rawseti(L, 1, slot);
  } else if (mask) {
    lua_pushvalue(L, 3);
    lua_rawseti(L, 1, slot);
  }
  if (began || mask) {
    lua_pushboolean(L, slot > 0);
    return 1;
  }
  lua_settop(L, 3);
  return 1;
}

/// Arguments: the function's table, slot, last operand, true where the chain is a condition. Returns the value of the
/// chain.
int natural_join(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  const lua_Integer slot = lua_tointeger(L, 2);
  const bool is_condition = lua_toboolean(L, 4);
  lua_settop(L, 3);
  if (is_condition) take_as_mask(L, 3);
  if (lua_rawgeti(L, 1, slot) == LUA_TNIL) {
    lua_settop(L, 3);
    return 1;
  }
  lua_pushnil(L);
  lua_rawseti(L, 1, slot);
  specialize(L, 3);  // beside a mask, a condition on sizes is the boolean that it is for this batch
  push_library_function(L, "combine");
  for (const int argument : {2, 4, 3}) lua_pushvalue(L, argument);
  lua_call(L, 3, 1);
  return 1;
}

int natural_not(lua_State* L) {
  lua_settop(L, 1);
  take_as_mask(L, 1);
  if (is_mask(L, 1)) {
    push_library_function(L, "negate");
    lua_insert(L, 1);
    lua_call(L, 1, 1);
    return 1;
  }
  lua_pushboolean(L, !plain_truth(L, 1));
  return 1;
}

}  // namespace triage::lua
