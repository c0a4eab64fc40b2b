#pragma once
#include "runtime/capture/graph_break.h"

#include <lua.hpp>

namespace triage::lua {

/// What graph breaks say of the script that runs in `L`: the line, and the functions on the stack with their source lines
/// (where the file can still be read). `L` must outlive it.
capture::UserCode user_code(lua_State* L);

}  // namespace triage::lua
