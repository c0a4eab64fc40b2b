#pragma once
#include <ATen/core/Tensor.h>

#include <lua.hpp>

#include <string>
#include <vector>

/// The first positions of errors, at the locations that a policy lists (triage::FirstPositions).
namespace triage::lua {

/// From now on, calls of the state keep those of these locations.
void keep_positions(lua_State* L, const std::vector<std::string>& locations);

/// Before a call: nothing has been searched.
void begin_positions(lua_State* L);

/// What the call found, for each location, behind the others; recorded, as what a script calls.
void append_positions(lua_State* L, std::vector<at::Tensor>& results);

/// Adds `note_positions` to the table on top of the stack.
void add_positions(lua_State* L);

}  // namespace triage::lua
