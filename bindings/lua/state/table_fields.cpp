#include "bindings/lua/state/table_fields.h"
#include "bindings/lua/state/stack.h"

#include <map>

namespace triage::lua {
namespace {

constexpr size_t fields_shown = 6, text_shown = 40;
constexpr int fields_looked_at = 1000;  // an error message is not worth more

std::string value_text(lua_State* L, int index) {
  switch (lua_type(L, index)) {
    case LUA_TBOOLEAN:
      return lua_toboolean(L, index) ? "true" : "false";
    case LUA_TNUMBER: {
      lua_pushvalue(L, index);  // lua_tostring changes the value in place
      std::string text = lua_tostring(L, -1);
      lua_pop(L, 1);
      return text;
    }
    case LUA_TSTRING: {
      const std::string text = lua_tostring(L, index);
      return '"' + (text.size() > text_shown ? text.substr(0, text_shown) + "..." : text) + '"';
    }
    default:
      return luaL_typename(L, index);
  }
}

}  // namespace

int push_own_field(lua_State* L, int index, const char* name) {
  index = lua_absindex(L, index);
  lua_pushstring(L, name);
  return lua_rawget(L, index);
}

std::string beside_list(lua_State* L, int index) {
  index = lua_absindex(L, index);
  const auto count = static_cast<lua_Integer>(lua_rawlen(L, index));
  reserve(L, 0, "keys of a list");
  lua_pushnil(L);
  while (lua_next(L, index)) {
    lua_pop(L, 1);
    const bool integer = lua_isinteger(L, -1);
    if (integer && lua_tointeger(L, -1) >= 1 && lua_tointeger(L, -1) <= count) continue;
    const std::string key = value_text(L, -1);
    const bool text = lua_type(L, -1) == LUA_TSTRING;
    lua_pop(L, 1);
    if (text) return "a field '" + key.substr(1, key.size() - 2) + "' (named arguments go in a table behind the list)";
    return "an element [" + key + "] (the elements of a list are counted from 1, without gaps)";
  }
  return "";
}

bool is_global_function(lua_State* L, const std::string& name) {
  reserve(L, 0, "name of a global");
  lua_pushglobaltable(L);
  const bool found = push_own_field(L, -1, name.c_str()) == LUA_TFUNCTION;
  lua_pop(L, 2);
  return found;
}

std::string fields_text(lua_State* L, int index) {
  index = lua_absindex(L, index);
  std::map<std::string, std::string> first;  // in order; never more than are shown, and one that tells of the rest
  reserve(L, 0, "fields of a table");
  lua_pushnil(L);
  for (int looked_at = 0; lua_next(L, index); ++looked_at) {
    if (looked_at == fields_looked_at) {
      lua_pop(L, 2);
      break;
    }
    if (lua_type(L, -2) == LUA_TSTRING) {
      first.emplace(lua_tostring(L, -2), value_text(L, -1));
      if (first.size() > fields_shown + 1) first.erase(std::prev(first.end()));
    }
    lua_pop(L, 1);
  }
  if (first.empty()) return "";
  std::string text;
  size_t shown = 0;
  for (const auto& [name, value] : first) {
    if (shown++ == fields_shown) {
      text += ", ...";
      break;
    }
    text += (text.empty() ? "" : ", ") + name + " = " + value;
  }
  return '{' + text + '}';
}

void set_text(lua_State* L, const char* name, std::string_view text) {
  charge_text(L, text.size());
  lua_pushlstring(L, text.data(), text.size());
  lua_setfield(L, -2, name);
}

void set_integer(lua_State* L, const char* name, lua_Integer value) {
  lua_pushinteger(L, value);
  lua_setfield(L, -2, name);
}

}  // namespace triage::lua
