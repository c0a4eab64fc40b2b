#include "bindings/lua/sandbox/library.h"
#include "bindings/lua/state.h"

#include <bit>
#include <string>

/// Contract: the length of a table, which a script's `__len` may make anything, is asked for once and charged before the
/// loop over it begins.
namespace triage::lua {
namespace {

void charge_steps(lua_State* L, lua_Integer steps) {
  if (steps > 0) charge(L, 0, 0, static_cast<uint64_t>(steps));
}

/// Number of elements from `first` to `last`, without overflow.
uint64_t span(lua_Integer first, lua_Integer last) {
  return last < first ? 0 : static_cast<uint64_t>(last) - static_cast<uint64_t>(first) + 1;
}

int table_insert(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  const lua_Integer end = static_cast<lua_Integer>(static_cast<lua_Unsigned>(luaL_len(L, 1)) + 1);  // first empty place
  lua_Integer position = end;
  if (lua_gettop(L) == 3) {
    position = luaL_checkinteger(L, 2);
    luaL_argcheck(L, static_cast<lua_Unsigned>(position) - 1u < static_cast<lua_Unsigned>(end), 2,
                  "position out of bounds");
    charge_steps(L, end - position);
    for (lua_Integer i = end; i > position; --i) {
      lua_geti(L, 1, i - 1);
      lua_seti(L, 1, i);
    }
  } else if (lua_gettop(L) != 2) {
    throw LibraryError("wrong number of arguments to 'insert'");
  }
  lua_seti(L, 1, position);
  return 0;
}

int table_remove(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  const lua_Integer size = luaL_len(L, 1);
  lua_Integer position = luaL_optinteger(L, 2, size);
  if (position != size)
    luaL_argcheck(L, static_cast<lua_Unsigned>(position) - 1u <= static_cast<lua_Unsigned>(size), 2,
                  "position out of bounds");
  charge_steps(L, size - position);
  lua_geti(L, 1, position);
  for (; position < size; ++position) {
    lua_geti(L, 1, position + 1);
    lua_seti(L, 1, position);
  }
  lua_pushnil(L);
  lua_seti(L, 1, position);
  return 1;
}

int table_move(lua_State* L) {
  const lua_Integer first = luaL_checkinteger(L, 2), last = luaL_checkinteger(L, 3);
  charge(L, 0, 0, span(first, last));
  return call_wrapped(L);
}

int table_concat(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  size_t separator_size = 0;
  const char* separator = luaL_optlstring(L, 2, "", &separator_size);
  const lua_Integer first = luaL_optinteger(L, 3, 1);
  const lua_Integer last = luaL_opt(L, luaL_checkinteger, 4, luaL_len(L, 1));
  std::string out;
  for (lua_Integer i = first; i <= last; ++i) {
    lua_geti(L, 1, i);
    if (!lua_isstring(L, -1))
      throw LibraryError(std::string("invalid value (") + luaL_typename(L, -1) + ") at index " + std::to_string(i) +
                         " in table for 'concat'");
    size_t size = 0;
    const char* text = lua_tolstring(L, -1, &size);
    charge(L, out.size() + size + separator_size, 0, 1 + size / 16);
    out.append(text, size);
    lua_pop(L, 1);
    if (i == last) break;  // `last` may be the largest integer
    out.append(separator, separator_size);
  }
  charge(L, out.size());
  lua_pushlstring(L, out.data(), out.size());
  return 1;
}

int table_unpack(lua_State* L) {
  const int count = call_wrapped(L);  // at most as many as Lua's stack holds
  charge_steps(L, count);
  return count;
}

/// Sorts a copy and writes it back where the table has metamethods, so that its length cannot change in between.
int table_sort(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 2);
  const lua_Integer size = luaL_len(L, 1);
  if (size < 2) return 0;
  charge(L, 0, 0, static_cast<uint64_t>(size));
  charge(L, 0, 0, static_cast<uint64_t>(size) * static_cast<uint64_t>(std::bit_width(static_cast<uint64_t>(size))));
  if (!lua_getmetatable(L, 1)) return call_wrapped(L);
  lua_pop(L, 1);
  lua_pushvalue(L, 1);
  lua_newtable(L);
  lua_copy(L, -1, 1);
  lua_pop(L, 1);  // 1: the copy, 2: comparator, 3: the table
  for (lua_Integer i = 1; i <= size; ++i) {
    lua_geti(L, 3, i);
    lua_rawseti(L, 1, i);
  }
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_pushvalue(L, 1);
  lua_pushvalue(L, 2);
  lua_call(L, 2, 0);
  for (lua_Integer i = 1; i <= size; ++i) {
    lua_rawgeti(L, 1, i);
    lua_seti(L, 3, i);
  }
  return 0;
}

}  // namespace

void budget_tables(lua_State* L) {
  lua_getglobal(L, "table");
  static const luaL_Reg functions[] = {{"insert", library_function<table_insert>},
                                       {"remove", library_function<table_remove>},
                                       {"concat", library_function<table_concat>},
                                       {nullptr, nullptr}};
  luaL_setfuncs(L, functions, 0);
  wrap_function(L, "move", library_function<table_move>);
  wrap_function(L, "unpack", library_function<table_unpack>);
  wrap_function(L, "sort", library_function<table_sort>);
  lua_pop(L, 1);
}

}  // namespace triage::lua
