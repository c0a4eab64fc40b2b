// A registry table: address of an upvalue -> a function that has it, name of a global or table -> true. It keeps alive
// what it names, so that an address is never that of something else.
#include "bindings/lua/semantics/allowed_writes.h"

#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/userdata.h"

#include <string_view>

namespace triage::lua {
namespace {

const char kWrites = 0, kCount = 0, kFunctions = 0;  // their addresses are registry keys

bool push_writes(lua_State* L) {
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &kWrites) == LUA_TTABLE) return true;
  lua_pop(L, 1);
  return false;
}

/// The key is below the value on top of the stack; pops both.
void note(lua_State* L) {
  reserve(L, 0, "allowed writes");
  push_registry_table(L, &kWrites);
  lua_insert(L, -3);
  lua_pushvalue(L, -2);
  const bool fresh = lua_rawget(L, -4) == LUA_TNIL;
  lua_pop(L, 1);
  lua_rawset(L, -3);
  lua_pop(L, 1);
  if (!fresh) return;
  lua_pushinteger(L, count_allowed_writes(L) + 1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &kCount);
}

/// Pops the key on top of the stack.
bool pop_is_noted(lua_State* L) {
  if (!push_writes(L)) {
    lua_pop(L, 1);
    return false;
  }
  lua_insert(L, -2);
  const bool known = lua_rawget(L, -2) != LUA_TNIL;
  lua_pop(L, 2);
  return known;
}

}  // namespace

void note_allowed_function(lua_State* L, int index) {
  reserve(L, 0, "allowed functions");
  remember(L, index, &kFunctions);
}

bool is_allowed_function(lua_State* L, int index) { return is_remembered(L, index, &kFunctions); }

void note_allowed_upvalue(lua_State* L, const char* name) {
  lua_Debug frame;
  if (!lua_getstack(L, 1, &frame)) return;
  lua_getinfo(L, "f", &frame);
  const int function = lua_gettop(L);
  for (int i = 1; const char* own = lua_getupvalue(L, function, i); ++i) {
    lua_pop(L, 1);
    if (std::string_view(own) != name) continue;
    lua_pushlightuserdata(L, lua_upvalueid(L, function, i));
    lua_pushvalue(L, function);
    note(L);
    break;
  }
  lua_settop(L, function - 1);
}

void note_allowed_global(lua_State* L, const char* name) {
  lua_pushstring(L, name);
  lua_pushboolean(L, true);
  note(L);
}

void note_allowed_table(lua_State* L, int index) {
  lua_pushvalue(L, index);
  lua_pushboolean(L, true);
  note(L);
}

bool is_allowed_upvalue(lua_State* L, int index, int upvalue) {
  index = lua_absindex(L, index);
  if (lua_iscfunction(L, index)) return false;
  lua_pushlightuserdata(L, lua_upvalueid(L, index, upvalue));
  return pop_is_noted(L);
}

bool is_allowed_write(lua_State* L, int index) {
  lua_pushvalue(L, index);
  return pop_is_noted(L);
}

lua_Integer count_allowed_writes(lua_State* L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &kCount);
  const lua_Integer count = lua_tointeger(L, -1);
  lua_pop(L, 1);
  return count;
}

}  // namespace triage::lua
