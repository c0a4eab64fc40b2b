#include "bindings/lua/sandbox/library.h"
#include "bindings/lua/state/state.h"

#include <climits>
#include <string>

/// Contract: the length of a table, which a script's `__len` may make anything, is asked for once and charged before
/// the loop over it begins.
namespace triage::lua {
namespace {

/// Number of elements from `first` to `last`, without overflow.
uint64_t span(lua_Integer first, lua_Integer last) {
  return last < first ? 0 : static_cast<uint64_t>(last) - static_cast<uint64_t>(first) + 1;
}

/// A loop over elements: charged before it begins, and the clock is looked at on the way, for one element may take
/// long: it may stand at the end of a chain of `__index`.
class ChargedLoop {
 public:
  ChargedLoop(lua_State* L, uint64_t steps) : L_(L) { charge(L, 0, 0, steps); }
  void step() {
    constexpr uint64_t interval = 16;
    if (++steps_ % interval == 0) charge(L_, 0);
  }

 private:
  lua_State* L_;
  uint64_t steps_ = 0;
};

/// t[i] = the value on top, which goes.
void set_element(lua_State* L, int table, lua_Integer i) {
  lua_pushinteger(L, i);
  note_key(L, -1);
  lua_pop(L, 1);
  lua_seti(L, table, i);
}

int table_insert(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  const lua_Integer end = static_cast<lua_Integer>(static_cast<lua_Unsigned>(luaL_len(L, 1)) + 1);  // first empty place
  lua_Integer position = end;
  if (lua_gettop(L) == 3) {
    position = luaL_checkinteger(L, 2);
    luaL_argcheck(L, static_cast<lua_Unsigned>(position) - 1u < static_cast<lua_Unsigned>(end), 2,
                  "position out of bounds");
    ChargedLoop loop(L, span(position, end));
    for (lua_Integer i = end; i > position; --i) {
      loop.step();
      lua_geti(L, 1, i - 1);
      set_element(L, 1, i);
    }
  } else if (lua_gettop(L) != 2) {
    throw LibraryError("wrong number of arguments to 'insert'");
  }
  set_element(L, 1, position);
  return 0;
}

int table_remove(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  const lua_Integer size = luaL_len(L, 1);
  lua_Integer position = luaL_optinteger(L, 2, size);
  if (position != size)
    luaL_argcheck(L, static_cast<lua_Unsigned>(position) - 1u <= static_cast<lua_Unsigned>(size), 2,
                  "position out of bounds");
  ChargedLoop loop(L, span(position, size));
  lua_geti(L, 1, position);
  for (; position < size; ++position) {
    loop.step();
    lua_geti(L, 1, position + 1);
    set_element(L, 1, position);
  }
  lua_pushnil(L);
  lua_seti(L, 1, position);
  return 1;
}

int table_move(lua_State* L) {
  const lua_Integer first = luaL_checkinteger(L, 2), last = luaL_checkinteger(L, 3), place = luaL_checkinteger(L, 4);
  const int target = lua_isnoneornil(L, 5) ? 1 : 5;
  luaL_checktype(L, 1, LUA_TTABLE);
  luaL_checktype(L, target, LUA_TTABLE);
  if (last < first) return lua_pushvalue(L, target), 1;
  luaL_argcheck(L, first > 0 || last < LUA_MAXINTEGER + first, 3, "too many elements to move");
  const lua_Integer count = last - first + 1;
  luaL_argcheck(L, place <= LUA_MAXINTEGER - count + 1, 4, "destination wrap around");
  const bool backwards = place > first && place <= last && (target == 1 || lua_compare(L, 1, target, LUA_OPEQ));
  ChargedLoop loop(L, span(first, last));
  for (lua_Integer i = 0; i < count; ++i) {
    const lua_Integer offset = backwards ? count - 1 - i : i;
    loop.step();
    lua_geti(L, 1, first + offset);
    set_element(L, target, place + offset);
  }
  lua_pushvalue(L, target);
  return 1;
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
    charge_text(L, out.size() + size + separator_size, size);
    out.append(text, size);
    lua_pop(L, 1);
    if (i == last) break;  // `last` may be the largest integer
    out.append(separator, separator_size);
  }
  lua_pushlstring(L, out.data(), out.size());
  return 1;
}

int table_unpack(lua_State* L) {
  const lua_Integer first = luaL_optinteger(L, 2, 1);
  const lua_Integer last = luaL_opt(L, luaL_checkinteger, 3, luaL_len(L, 1));
  if (span(first, last) > static_cast<uint64_t>(most_values))
    throw LibraryError("too many results to unpack: a call in a policy has at most " + std::to_string(most_values));
  const int count = static_cast<int>(span(first, last));
  luaL_checkstack(L, count, "too many results to unpack");
  ChargedLoop loop(L, span(first, last));
  for (int i = 0; i < count; ++i) {
    loop.step();
    lua_geti(L, 1, first + i);
  }
  return count;
}

/// What table.sort is given as its comparator, so that the clock is looked at. Upvalue: the script's own, or nil.
int compare_elements(lua_State* L) {
  charge(L, 0, 0, 1);
  if (lua_isnil(L, lua_upvalueindex(1))) {
    lua_pushboolean(L, lua_compare(L, 1, 2, LUA_OPLT));
    return 1;
  }
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, 2, 1);
  return 1;
}

/// Sorts a copy and writes it back where the table has metamethods, so that its length cannot change in between.
int table_sort(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 2);
  const lua_Integer size = luaL_len(L, 1);
  if (size < 2) return 0;
  charge(L, 0, 0, static_cast<uint64_t>(size));
  luaL_argcheck(L, size < INT_MAX, 1, "array too big");
  if (!lua_isnil(L, 2)) luaL_checktype(L, 2, LUA_TFUNCTION);
  lua_pushcclosure(L, library_function<compare_elements>, 1);  // 2: comparator
  if (!lua_getmetatable(L, 1)) return call_wrapped(L);
  lua_pop(L, 1);
  lua_pushvalue(L, 1);
  lua_newtable(L);
  lua_copy(L, -1, 1);
  lua_pop(L, 1);  // 1: the copy, 3: the table
  ChargedLoop loop(L, 2 * span(1, size));
  for (lua_Integer i = 1; i <= size; ++i) {
    loop.step();
    lua_geti(L, 3, i);
    lua_rawseti(L, 1, i);
  }
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_pushvalue(L, 1);
  lua_pushvalue(L, 2);
  lua_call(L, 2, 0);
  for (lua_Integer i = 1; i <= size; ++i) {
    loop.step();
    lua_rawgeti(L, 1, i);
    set_element(L, 3, i);
  }
  return 0;
}

}  // namespace

void budget_tables(lua_State* L) {
  lua_getglobal(L, "table");
  static const luaL_Reg functions[] = {
      {"insert", library_function<table_insert>}, {"remove", library_function<table_remove>},
      {"concat", library_function<table_concat>}, {"move", library_function<table_move>},
      {"unpack", library_function<table_unpack>}, {nullptr, nullptr}};
  luaL_setfuncs(L, functions, 0);
  wrap_function(L, "sort", library_function<table_sort>);
  lua_pop(L, 1);
}

}  // namespace triage::lua
