#pragma once
#include <lua.hpp>

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

/// Runs the prelude: plain Lua, never rewritten, with the table `core` as its arguments. After open_flags.
void open_prelude(lua_State* L);

}  // namespace triage::lua
