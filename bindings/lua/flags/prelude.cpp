#include "bindings/lua/flags/prelude.h"

#include "bindings/lua/state.h"
#include "bindings/lua/surplus.h"
#include "bindings/lua/tensors/torch.h"
#include "bindings/lua/userdata.h"

#include <string>

namespace triage::lua {
namespace {

const char wrapped = 0;  // its address: registry key of a weak table, from each function to the one it stands for

int finish_forwarded(lua_State* L, int, lua_KContext) { return lua_gettop(L); }

/// Calls its first upvalue, a function of the prelude; the others: how many arguments that takes (-1: any), and its name. A tail call (`return fix(z, f)`) leaves no trace of the script's function
/// when it goes to a Lua function, but does when it goes to a C function: messages and graphs can then name the line.
int forward(lua_State* L) {
  if (const auto most = lua_tointeger(L, lua_upvalueindex(2)); most >= 0)
    at_most(L, static_cast<int>(most), lua_tostring(L, lua_upvalueindex(3)));
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_callk(L, lua_gettop(L) - 1, LUA_MULTRET, 0, finish_forwarded);
  return finish_forwarded(L, LUA_OK, 0);
}

/// Makes the function of the prelude on top of the stack one that scripts call, as `name`.
void make_forwarding(lua_State* L, const std::string& name) {
  lua_Debug info;
  lua_pushvalue(L, -1);
  lua_getinfo(L, ">u", &info);
  lua_pushinteger(L, info.isvararg ? -1 : info.nparams);
  lua_pushlstring(L, name.data(), name.size());
  lua_pushcclosure(L, guarded<forward>, 3);
}

/// Replaces the Lua functions that are fields of the table at the top of the stack, those of tables in it as well where it is
/// in no other. Names begin with `prefix`.
void forward_fields(lua_State* L, const std::string& prefix) {
  const int table = lua_gettop(L);
  lua_pushnil(L);
  while (lua_next(L, table)) {
    const std::string name = prefix + (lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?");
    if (lua_isfunction(L, -1) && !lua_iscfunction(L, -1)) {
      make_forwarding(L, name);
      lua_pushvalue(L, -2);
      lua_insert(L, -2);
      lua_rawset(L, table);  // of a field that is there: the traversal goes on
    } else {
      if (prefix.empty() && lua_istable(L, -1) && !lua_rawequal(L, -1, table)) forward_fields(L, name + ".");
      lua_pop(L, 1);
    }
  }
}

}  // namespace

void open_prelude(lua_State* L) {
  for (const PreludeFile& file : prelude_files()) {
    // A name that begins with "=[" marks lines of ours: messages then name the line of the script that called.
    const std::string chunk_name = "=[triage " + std::string(file.name) + "]";
    if (luaL_loadbufferx(L, file.source.data(), file.source.size(), chunk_name.c_str(), "t") != LUA_OK) lua_error(L);
    push_core(L);
    lua_call(L, 1, 0);
  }
  lua_pushglobaltable(L);
  forward_fields(L, "");
  lua_pop(L, 1);
}

void set_wrapped(lua_State* L, int outer, int inner) {
  outer = lua_absindex(L, outer), inner = lua_absindex(L, inner);
  push_weak_table(L, &wrapped);
  lua_pushvalue(L, outer);
  lua_pushvalue(L, inner);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

void push_wrapped(lua_State* L, int index) {
  lua_pushvalue(L, index);
  push_weak_table(L, &wrapped);
  for (;;) {
    lua_pushvalue(L, -2);
    if (lua_rawget(L, -2) == LUA_TNIL) break;
    lua_replace(L, -3);
  }
  lua_pop(L, 2);
}

void push_forwarding(lua_State* L, int index, const std::string& name) {
  lua_pushvalue(L, index);
  make_forwarding(L, name);
}

}  // namespace triage::lua
