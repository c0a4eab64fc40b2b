#pragma once
#include <lua.hpp>

#include <string>

namespace triage::lua {

/// A value as a person at a prompt reads it: flags as `flags.repr` with a table of the bad samples, other tensors as
/// they print with the count of what is not finite, tables with what is in them, anything else as `tostring` has it.
/// May run Lua code (`__tostring`). `is_flags` tells what the session knows of the tensor.
std::string display(lua_State* L, int index, bool is_flags);

}  // namespace triage::lua
