#include "bindings/lua/semantics/loading.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "bindings/lua/rewriter/rewriter.h"
#include "bindings/lua/semantics/base_library.h"
#include "bindings/lua/semantics/chunk.h"
#include "bindings/lua/semantics/intrinsics.h"
#include "bindings/lua/semantics/tensor_semantics.h"
#include "bindings/lua/semantics/wrapping.h"
#include "bindings/lua/state/effects.h"

namespace triage::lua {
namespace {

const char kEnvironment = 0;  // its address is the registry key

void push_environment(lua_State* L) {
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &kEnvironment) != LUA_TNIL) return;
  lua_pop(L, 1);
  lua_pushglobaltable(L);
}

bool is_compiled(std::string_view source) { return !source.empty() && source[0] == LUA_SIGNATURE[0]; }

/// nil and the message on top: what the loading functions return instead of raising.
int fail(lua_State* L) {
  luaL_pushfail(L);
  lua_insert(L, -2);
  return 2;
}

/// A function that string.dump wrote has lost its upvalues: gives back those that are ours, and its environment.
void restore_upvalues(lua_State* L, int function, int env) {
  const int first = lua_gettop(L) + 1;
  push_intrinsics(L, 0);
  const auto& names = rewriter::intrinsics();
  for (int i = 1; const char* const name = lua_getupvalue(L, function, i); i++) {
    lua_pop(L, 1);
    int value = std::strcmp(name, "_ENV") == 0 ? env : 0;
    for (size_t k = 0; k < names.size(); k++)
      if (names[k] == name) value = first + static_cast<int>(k);
    if (!value) continue;
    lua_pushvalue(L, value);
    lua_setupvalue(L, function, i);
  }
  lua_settop(L, first - 1);
}

/// Loads `source` with the environment at `env`; one result, the function, or nil and a message.
int load_source(lua_State* L, std::string_view source, const char* chunk_name, const char* mode, int env) {
  const bool compiled = is_compiled(source);
  if (compiled && is_policy(L)) mode = "t";  // bytecode is not checked: it could do anything
  if (!std::strchr(mode, compiled ? 'b' : 't')) {
    lua_pushfstring(L, "attempt to load a %s chunk (mode is '%s')", compiled ? "binary" : "text", mode);
    return fail(L);
  }
  if (compiled) {
    if (luaL_loadbufferx(L, source.data(), source.size(), chunk_name, "b") != LUA_OK) return fail(L);
    restore_upvalues(L, lua_gettop(L), env);
    return 1;
  }
  return load_chunk(L, source, chunk_name, {env, is_policy(L)}) == LUA_OK ? 1 : fail(L);
}

// --- load

/// All that the function at 1 returns until nil or an empty string, as one string.
int read_pieces(lua_State* L) {
  std::string text;
  while (true) {
    lua_pushvalue(L, 1);
    lua_call(L, 0, 1);
    specialize(L, -1);
    if (lua_isnil(L, -1)) break;
    if (!lua_isstring(L, -1)) return luaL_error(L, "reader function must return a string");
    size_t size = 0;
    const char* const piece = lua_tolstring(L, -1, &size);
    if (size == 0) break;
    charge_bytes(L, text.size() + size);
    text.append(piece, size);
    lua_pop(L, 1);
  }
  lua_pushlstring(L, text.data(), text.size());
  return 1;
}

/// Replaces the reader function at 1 by the text it gives; false with a message on top where it fails.
bool read_argument(lua_State* L) {
  lua_pushcfunction(L, read_pieces);
  lua_pushvalue(L, 1);
  if (lua_pcall(L, 1, 1, 0) != LUA_OK) {
    go_on_unwinding(L);
    return false;
  }
  lua_replace(L, 1);
  return true;
}

int base_load(lua_State* L) {
  specialize(L, 1);
  const bool is_text = lua_isstring(L, 1);
  const char* const mode = luaL_optstring(L, 3, "bt");
  const char* const chunk_name = luaL_optstring(L, 2, is_text ? lua_tostring(L, 1) : "=(load)");
  const bool has_env = !lua_isnone(L, 4);
  lua_settop(L, 4);
  if (!is_text) {
    luaL_checktype(L, 1, LUA_TFUNCTION);
    if (!read_argument(L)) return fail(L);
  }
  if (!has_env) {
    push_environment(L);
    lua_replace(L, 4);
  }
  // The name may be the text itself, which stays on the stack.
  const std::string_view source(lua_tostring(L, 1), lua_rawlen(L, 1));
  return load_source(L, source, chunk_name, mode, 4);
}

// --- files

/// Pushes the content of the file (standard input where `path` is null), or a message as Lua gives it.
bool push_file(lua_State* L, const char* path) {
  std::string text;
  if (path) {
    errno = 0;
    std::ifstream in(path, std::ios::binary);
    if (in) text.assign(std::istreambuf_iterator<char>(in), {});
    if (!in) {
      lua_pushfstring(L, "cannot open %s: %s", path, std::strerror(errno));
      return false;
    }
  } else {
    for (int c; (c = std::getchar()) != EOF;) text += static_cast<char>(c);
  }
  lua_pushlstring(L, text.data(), text.size());
  return true;
}

/// A compiled chunk may stand behind a `#` line; in a text that line is left to the rewriter.
std::string_view skip_to_compiled(std::string_view source) {
  if (source.empty() || source[0] != '#') return source;
  const size_t line_end = source.find('\n');
  const bool compiled = line_end != std::string_view::npos && is_compiled(source.substr(line_end + 1));
  return compiled ? source.substr(line_end + 1) : source;
}

int load_file(lua_State* L, const char* path, const char* mode, int env) {
  if (!push_file(L, path)) return fail(L);
  const std::string_view source = skip_to_compiled({lua_tostring(L, -1), lua_rawlen(L, -1)});
  const char* const name = path ? lua_pushfstring(L, "@%s", path) : "=stdin";
  return load_source(L, source, name, mode, env);
}

int base_loadfile(lua_State* L) {
  const char* const path = luaL_optstring(L, 1, nullptr);
  const char* const mode = luaL_optstring(L, 2, "bt");
  const bool has_env = !lua_isnone(L, 3);
  lua_settop(L, 3);
  if (!has_env) {
    push_environment(L);
    lua_replace(L, 3);
  }
  return load_file(L, path, mode, 3);
}

int finish_dofile(lua_State* L, int, lua_KContext) { return lua_gettop(L) - 1; }

int base_dofile(lua_State* L) {
  const char* const path = luaL_optstring(L, 1, nullptr);
  lua_settop(L, 1);
  push_environment(L);
  if (load_file(L, path, "bt", 2) != 1) return lua_error(L);
  lua_replace(L, 2);
  lua_settop(L, 2);
  lua_callk(L, 0, LUA_MULTRET, 0, finish_dofile);
  return finish_dofile(L, LUA_OK, 0);
}

/// The searcher of `require` for Lua files: like Lua's, by package.path.
int search_lua(lua_State* L) {
  const char* const name = luaL_checkstring(L, 1);
  lua_getglobal(L, LUA_LOADLIBNAME);
  lua_getfield(L, -1, "searchpath");
  lua_pushvalue(L, 1);
  lua_getfield(L, -3, "path");
  if (!lua_isstring(L, -1)) return luaL_error(L, "'package.path' must be a string");
  lua_call(L, 2, 2);
  if (lua_isnil(L, -2)) return 1;  // the message says where it looked
  lua_pop(L, 1);
  const int path = lua_gettop(L);
  push_environment(L);
  if (load_file(L, lua_tostring(L, path), "bt", path + 1) != 1)
    return luaL_error(L, "error loading module '%s' from file '%s':\n\t%s", name, lua_tostring(L, path),
                      lua_tostring(L, -1));
  lua_pushvalue(L, path);
  return 2;
}

void replace_searcher(lua_State* L) {
  constexpr int lua_files = 2;  // place of the searcher for Lua files
  if (lua_getglobal(L, LUA_LOADLIBNAME) == LUA_TTABLE) {
    if (lua_getfield(L, -1, "searchers") == LUA_TTABLE) {
      lua_pushcfunction(L, search_lua);
      lua_rawseti(L, -2, lua_files);
    }
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
}

}  // namespace

void set_load_environment(lua_State* L) {
  lua_pushvalue(L, -1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &kEnvironment);
}

void open_loading(lua_State* L) {
  lua_pushglobaltable(L);
  wrap_library_function(L, "load", base_load);
  wrap_library_function(L, "loadfile", base_loadfile);
  wrap_library_function(L, "dofile", base_dofile);
  lua_pop(L, 1);
  replace_searcher(L);
}

}  // namespace triage::lua
