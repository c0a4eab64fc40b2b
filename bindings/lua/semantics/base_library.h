#pragma once
#include <lua.hpp>

/// Lua's own library where it meets tensors and captures: what tests a value (`assert`, `table.sort`), iterates or
/// prints it (`ipairs`, `string.format`), writes tables (`rawset`, `setmetatable`, `table.insert`, ...), makes them
/// (`table.pack`), or loads code, which is then rewritten (`load`, and where they exist `loadfile`, `dofile`,
/// `require`). All else, messages included, stays as Lua has it.
namespace triage::lua {

/// Wraps the functions that stand in the globals now: call it behind whatever replaces them.
void open_base_library(lua_State* L);

/// The table on top of the stack becomes the environment that `load` gives to chunks when the script names none.
/// Without this it is the globals.
void set_load_environment(lua_State* L);

}  // namespace triage::lua
