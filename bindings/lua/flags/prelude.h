#pragma once
#include <lua.hpp>

#include <string>
#include <string_view>
#include <vector>

/// The part of the library that is written in Lua: scripts/prelude, compiled into the program at build time.
namespace triage::lua {

struct PreludeFile {
  std::string_view name;  // "err.lua"
  std::string_view source;
};

/// In the order in which they are loaded. (The build generates this from scripts/prelude.)
const std::vector<PreludeFile>& prelude_files();

/// Runs the prelude: plain Lua, never rewritten, with the table `core` as its arguments. After open_flags. What it put
/// into the globals, and into the tables there, is then called through C functions (see `push_forwarding`).
void open_prelude(lua_State* L);

/// Pushes a C function that calls the Lua function at `index`: a script that ends in `return f(...)` keeps its frame,
/// so that messages and graphs name its line.
void push_forwarding(lua_State* L, int index, const std::string& name);

/// The same for the functions in Lua that are fields of the table at `index`, which messages call by `prefix` and their
/// names.
void forward_fields(lua_State* L, int index, const std::string& prefix);
/// Replaces such a function on top of the stack by the one that it calls.
void see_through_forwarding(lua_State* L);

}  // namespace triage::lua
