#pragma once
#include <triage/backend.h>

#include <lua.hpp>

#include <memory>
#include <string>
#include <vector>

/// Backends written in Lua: functions that get a graph and example inputs, and return what is to be called in its
/// place. They belong to the interpreter that they were registered in, and are seen by no other.
namespace triage::lua {

/// The Lua thread that calls compiled code now: what a Lua backend made is called on it. Set before every call.
struct CallingThread {
  lua_State* L = nullptr;
};

/// triage.register_backend(name, fn)
int register_backend_(lua_State* L);

/// Names of all backends that a script may use: everybody's, and those of this interpreter.
std::vector<std::string> backends_of(lua_State* L);

/// The backend that the value at `index` stands for: a name, or the function itself. Throws InputError where there is
/// none of that name.
Backend backend_at(lua_State* L, int index, std::shared_ptr<const CallingThread> caller);

}  // namespace triage::lua
