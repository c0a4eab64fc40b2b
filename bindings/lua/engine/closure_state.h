#pragma once
#include <lua.hpp>

#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace triage::lua {

/// Remembers as libraries (loading/libraries.h) the tables in the environment at the top of the stack, and our own tables
/// that values of scripts lead to. Pops the environment.
void mark_libraries(lua_State* L);

/// Everything that the function (or callable) at `index` can read besides its arguments, as bytes: the values of its
/// upvalues and of the script's globals, tables and nested functions followed through. Tensors by identity, dtype, shape
/// and requires_grad: a captured graph reads their values anew on every run. Two calls with equal bytes see the same
/// world, as long as what they name by address is alive: that is added to the table at `anchors`, as keys.
///
/// `parts`: each upvalue of the function itself by its name, with where in the bytes what it holds ends.
using StateParts = std::vector<std::pair<std::string, size_t>>;
/// `tensors`: the userdata of tensors among it, but those that only globals hold.
std::string closure_state(lua_State* L, int index, int anchors, StateParts* parts = nullptr,
                          std::unordered_set<const void*>* tensors = nullptr);

}  // namespace triage::lua
