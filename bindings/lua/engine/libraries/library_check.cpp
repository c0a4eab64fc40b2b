#include "bindings/lua/engine/libraries/library_check.h"

#include <triage/error.h>

#include <dlfcn.h>

#include <lua.hpp>

#include <string>

namespace triage::lua {
namespace {

struct Witness {
  bool& destroyed;
  ~Witness() { destroyed = true; }
};

int raise_past_witness(lua_State* L) {
  auto* destroyed = static_cast<bool*>(lua_touserdata(L, 1));
  Witness witness{*destroyed};
  return lua_error(L);
}

bool unwinds() {
  bool destroyed = false;
  lua_State* L = luaL_newstate();
  lua_pushcfunction(L, raise_past_witness);
  lua_pushlightuserdata(L, &destroyed);
  lua_pcall(L, 1, 0, 0);
  lua_close(L);
  return destroyed;
}

std::string lua_library() {
  Dl_info info;
  return dladdr(reinterpret_cast<void*>(&lua_pcallk), &info) && info.dli_fname ? info.dli_fname : "an unknown library";
}

}  // namespace

void check_lua_library() {
  static const bool fine = unwinds();
  if (!fine)
    throw LoadError(
        "cannot load policies: this process takes Lua from " + lua_library() +
        ", which is compiled as C and would skip C++ destructors. triage needs liblua5.4-c++. "
        "Link the program with lua5.4-c++ in place of lua5.4, or load triage with dlopen(..., RTLD_DEEPBIND).");
}

}  // namespace triage::lua
