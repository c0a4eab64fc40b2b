#include "bindings/lua/values/read_only.h"

#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/state/table_fields.h"
#include "bindings/lua/state/userdata.h"
#include "bindings/lua/values/describe.h"

#include <triage/error.h>

#include <string>
#include <vector>

namespace triage::lua {
namespace {

const char protected_tables = 0;  // its address: registry key of a weak table

/// Iteration over a read-only view: upvalue 1 is the table behind it.
int view_next(lua_State* L) {
  lua_settop(L, 2);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_replace(L, 1);
  if (lua_next(L, 1)) return 2;
  lua_pushnil(L);
  return 1;
}

int view_pairs(lua_State* L) {
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_pushcclosure(L, guarded<view_next>, 1);
  lua_pushvalue(L, 1);
  lua_pushnil(L);
  return 3;
}

int view_length(lua_State* L) {
  lua_pushinteger(L, luaL_len(L, lua_upvalueindex(1)));
  return 1;
}

int view_call(lua_State* L) {
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_replace(L, 1);
  call_for_all(L, lua_gettop(L) - 1);
  return lua_gettop(L);
}

int view_write(lua_State* L) {
  const std::string key = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : describe(L, 2);
  throw InputError(std::string("cannot set '") + key + "' in `" + lua_tostring(L, lua_upvalueindex(1)) +
                   "`, which is read-only");
}

/// __index of a table whose fields are all there are: upvalue 1 says of what, as in "err has no".
int refuse_field(lua_State* L) {
  const std::string complaint = lua_tostring(L, lua_upvalueindex(1));
  if (lua_type(L, 2) != LUA_TSTRING) throw InputError(complaint + " " + describe(L, 2));
  const std::string field = lua_tostring(L, 2);
  if (is_global_function(L, field))
    throw InputError(complaint + " '" + field + "'; it stands by itself: write " + field + "(...)");
  std::vector<std::string> names;
  for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1))
    if (lua_type(L, -2) == LUA_TSTRING) names.emplace_back(lua_tostring(L, -2));
  throw InputError(complaint + " '" + field + "'" + did_you_mean(close_words(field, names)));
}

const char views = 0;  // its address: registry key of a weak table, from each view to the table behind it

bool is_view(lua_State* L, int index) {
  index = lua_absindex(L, index);
  push_weak_table(L, &views);
  lua_pushvalue(L, index);
  const bool is = lua_rawget(L, -2) != LUA_TNIL;
  lua_pop(L, 2);
  return is;
}

/// Sets `field` of the metatable on top of the stack to a closure over the table at `table`.
void set_view_function(lua_State* L, int table, const char* field, lua_CFunction function) {
  lua_pushvalue(L, table);
  lua_pushcclosure(L, function, 1);
  lua_setfield(L, -2, field);
}

/// Makes the plain tables that are fields of the one at `table` read-only, in place.
void protect_fields(lua_State* L, int table, const std::string& name) {
  std::vector<std::string> nested;
  lua_pushnil(L);
  while (lua_next(L, table)) {
    if (lua_type(L, -2) == LUA_TSTRING && lua_istable(L, -1) && !is_view(L, -1))
      nested.emplace_back(lua_tostring(L, -2));
    lua_pop(L, 1);
  }
  for (const auto& field : nested) {
    lua_pushlstring(L, field.data(), field.size());
    lua_pushvalue(L, -1);
    lua_rawget(L, table);
    push_read_only(L, -1, (name + "." + field).c_str());
    lua_remove(L, -2);
    lua_rawset(L, table);
  }
}

}  // namespace

void protect_table(lua_State* L, int index) { remember(L, index, &protected_tables); }
bool is_protected_table(lua_State* L, int index) { return is_remembered(L, index, &protected_tables); }

void refuse_unknown_fields(lua_State* L, const char* complaint) {
  lua_createtable(L, 0, 2);
  lua_pushstring(L, complaint);
  lua_pushcclosure(L, guarded<refuse_field>, 1);
  lua_setfield(L, -2, "__index");
  lua_pushboolean(L, false);
  lua_setfield(L, -2, "__metatable");
  lua_setmetatable(L, -2);
}

void push_read_only(lua_State* L, int index, const char* name) {
  const int table = lua_absindex(L, index);
  reserve(L, 0, "tables nested too deep");
  if (is_view(L, table)) {
    lua_pushvalue(L, table);
    return;
  }
  protect_fields(L, table, name);
  lua_newtable(L);  // the view
  lua_newtable(L);  // its metatable
  lua_pushvalue(L, table);
  lua_setfield(L, -2, "__index");
  lua_pushstring(L, name);
  lua_pushcclosure(L, guarded<view_write>, 1);
  lua_setfield(L, -2, "__newindex");
  set_view_function(L, table, "__pairs", guarded<view_pairs>);
  set_view_function(L, table, "__len", guarded<view_length>);
  if (luaL_getmetafield(L, table, "__call") != LUA_TNIL) {
    lua_pop(L, 1);
    set_view_function(L, table, "__call", guarded<view_call>);
  }
  lua_pushstring(L, name);
  lua_setfield(L, -2, "__name");
  lua_pushliteral(L, "read-only");
  lua_setfield(L, -2, "__metatable");
  lua_setmetatable(L, -2);
  protect_table(L, -1);
  push_weak_table(L, &views);
  lua_pushvalue(L, -2);
  lua_pushvalue(L, table);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

}  // namespace triage::lua
