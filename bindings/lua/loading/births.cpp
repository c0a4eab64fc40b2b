// Registry tables with weak keys: function -> id; table or function -> branch depth at birth; function -> the function
// that made it. The latter two are made anew for every capture.
#include "bindings/lua/loading/births.h"

#include "bindings/lua/loading/allowed_writes.h"
#include "bindings/lua/loading/effects.h"
#include "bindings/lua/loading/intrinsics.h"
#include "bindings/lua/loading/libraries.h"
#include "bindings/lua/userdata.h"

namespace triage::lua {
namespace {

// Their addresses are registry keys.
const char kIds = 0, kBorn = 0, kMakers = 0, kCapture = 0;

/// A table of the running capture; what an earlier one left is dropped.
void push_of_capture(lua_State* L, const char* key) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &kCapture);
  const auto known = static_cast<uint64_t>(lua_tointeger(L, -1));
  lua_pop(L, 1);
  if (known != current_capture()) {
    for (const char* const table : {&kBorn, &kMakers}) {
      push_new_weak_table(L, table);
      lua_pop(L, 1);
    }
    lua_pushinteger(L, static_cast<lua_Integer>(current_capture()));
    lua_rawsetp(L, LUA_REGISTRYINDEX, &kCapture);
  }
  lua_rawgetp(L, LUA_REGISTRYINDEX, key);
}

/// Was the value on top born in this capture and branch? Pops it.
bool pop_is_born(lua_State* L) {
  push_of_capture(L, &kBorn);
  lua_insert(L, -2);
  const bool known = lua_rawget(L, -2) == LUA_TNUMBER;
  const bool born = known && lua_tointeger(L, -1) >= current_branch();
  lua_pop(L, 2);
  return born;
}

void push_running_function(lua_State* L) {
  lua_Debug frame;
  if (lua_getstack(L, 1, &frame))
    lua_getinfo(L, "f", &frame);
  else
    lua_pushnil(L);
}

}  // namespace

int64_t function_id(lua_State* L, int index) {
  index = lua_absindex(L, index);
  push_weak_table(L, &kIds);
  lua_pushvalue(L, index);
  lua_rawget(L, -2);
  const lua_Integer id = lua_tointeger(L, -1);
  lua_pop(L, 2);
  return id;
}

void set_function_id(lua_State* L, int index, int64_t id) {
  index = lua_absindex(L, index);
  push_weak_table(L, &kIds);
  lua_pushvalue(L, index);
  lua_pushinteger(L, id);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

void mark_born(lua_State* L, int index) {
  if (!current_capture()) return;
  index = lua_absindex(L, index);
  push_of_capture(L, &kBorn);
  lua_pushvalue(L, index);
  lua_pushinteger(L, current_branch());
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

void mark_born_function(lua_State* L, int index) {
  index = lua_absindex(L, index);
  mark_born(L, index);
  push_of_capture(L, &kMakers);
  lua_pushvalue(L, index);
  push_running_function(L);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

bool owns_upvalue(lua_State* L, int levels_out) {
  // The variable belongs to the call that made the outermost function on the way to it.
  push_running_function(L);
  for (; levels_out > 1 && !lua_isnil(L, -1); levels_out--) {
    push_of_capture(L, &kMakers);
    lua_insert(L, -2);
    lua_rawget(L, -2);
    lua_remove(L, -2);
  }
  return pop_is_born(L);
}

void note_table_write(lua_State* L, int index) {
  bump_epoch(L);
  note_library_write(L, index);
  if (!current_capture()) return;
  lua_pushvalue(L, index);
  if (pop_is_born(L)) return;
  if (effects_allowed()) return note_allowed_table(L, index);
  const bool in_branch = current_branch() > 0;
  break_graph(
      L, capture::Break::outside_write,
      in_branch ? "a write to a table from outside of the branch" : "a write to a table that existed before the call",
      in_branch ? "A branch runs for every row: return the value from the branch instead."
                : "Write to a table made in the function, or return the value.");
}

}  // namespace triage::lua
