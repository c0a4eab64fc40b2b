#include "bindings/lua/flags/prelude.h"

#include "bindings/lua/state/state.h"
#include "bindings/lua/state/userdata.h"
#include "bindings/lua/tensors/torch.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/guarded.h"
#include "runtime/messages/fork_safe_mutex.h"

#include <mutex>
#include <string>
#include <vector>

namespace triage::lua {
namespace {

int finish_forwarded(lua_State* L, int, lua_KContext) { return lua_gettop(L); }

/// Calls its first upvalue, a function of the prelude; the others: how many arguments that takes (-1: any), and its
/// name. A tail call (`return fix(z, f)`) leaves no trace of the script's function when it goes to a Lua function, but
/// does when it goes to a C function: messages and graphs can then name the line.
int forward(lua_State* L) {
  if (const auto most = lua_tointeger(L, lua_upvalueindex(2)); most >= 0)
    at_most(L, static_cast<int>(most), lua_tostring(L, lua_upvalueindex(3)));
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  if (any_guarded(L, 2)) {  // call_guarded(name, function, ...)
    push_core(L);
    lua_getfield(L, -1, "call_guarded");
    lua_remove(L, -2);
    lua_insert(L, 1);
    lua_pushvalue(L, lua_upvalueindex(3));
    lua_insert(L, 2);
  }
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

int append_to_text(lua_State*, const void* bytes, size_t size, void* text) {
  static_cast<std::string*>(text)->append(static_cast<const char*>(bytes), size);
  return 0;
}

/// Of each file, with its lines, as Lua compiles it. Made once: to parse the prelude takes longer than all else that a
/// state needs.
const std::vector<std::string>& code_of_prelude(lua_State* L) {
  static auto& mutex = *new messages::ForkSafeMutex;
  static auto& code = *new std::vector<std::string>;
  const std::lock_guard lock(mutex);
  if (code.size() == prelude_files().size()) return code;
  code.clear();  // an error may have ended another thread's attempt
  for (const PreludeFile& file : prelude_files()) {
    // A name that begins with "=[" marks lines of ours: messages then name the line of the script that called.
    const std::string name = "=[triage " + std::string(file.name) + "]";
    if (luaL_loadbufferx(L, file.source.data(), file.source.size(), name.c_str(), "t") != LUA_OK) lua_error(L);
    lua_dump(L, append_to_text, &code.emplace_back(), /*strip=*/0);
    lua_pop(L, 1);
  }
  return code;
}

}  // namespace

void forward_fields(lua_State* L, int index, const std::string& prefix) {
  const int table = lua_absindex(L, index);
  lua_pushnil(L);
  while (lua_next(L, table)) {
    if (!lua_isfunction(L, -1) || lua_iscfunction(L, -1)) {
      lua_pop(L, 1);
      continue;
    }
    make_forwarding(L, prefix + (lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?"));
    lua_pushvalue(L, -2);
    lua_insert(L, -2);
    lua_rawset(L, table);  // of a field that is there: the traversal goes on
  }
}

void open_prelude(lua_State* L) {
  for (const std::string& code : code_of_prelude(L)) {
    if (luaL_loadbufferx(L, code.data(), code.size(), "=prelude", "b") != LUA_OK) lua_error(L);
    push_core(L);
    lua_call(L, 1, 0);
  }
  lua_pushglobaltable(L);
  const int globals = lua_gettop(L);
  for (lua_pushnil(L); lua_next(L, globals); lua_pop(L, 1))
    if (lua_istable(L, -1) && !lua_rawequal(L, -1, globals) && lua_type(L, -2) == LUA_TSTRING)
      forward_fields(L, -1, std::string(lua_tostring(L, -2)) + ".");
  forward_fields(L, globals, "");
  lua_pop(L, 1);
}

void see_through_forwarding(lua_State* L) {
  if (lua_tocfunction(L, -1) != guarded<forward>) return;
  lua_getupvalue(L, -1, 1);
  lua_remove(L, -2);
}

void push_forwarding(lua_State* L, int index, const std::string& name) {
  lua_pushvalue(L, index);
  make_forwarding(L, name);
}

}  // namespace triage::lua
