#pragma once
#include "runtime/capture/graph_break.h"

#include <triage/front_end.h>

#include <lua.hpp>

#include <string>

namespace triage::lua {

/// The function at `outer` stands for the one at `inner` and takes what that takes, though its own parameters are
/// `...`.
void set_wrapped(lua_State* L, int outer, int inner);
/// The function at `outer` was made by a call of the library's function `name` with the values from `first` to `last`.
void set_made(lua_State* L, int outer, const char* name, int first, int last);
/// Pushes that call as {name, argument, ...; n = how many arguments}; false, and nothing, where there is none.
bool push_made(lua_State* L, int index);
/// Pushes the function whose parameters are those of the value at `index`: the innermost that it stands for, else
/// itself.
void push_wrapped(lua_State* L, int index);

/// What to call the function at `index`: the file and line where it is defined; of a module, the name of its class;
/// of another value that can be called, that of its type.
std::string function_name(lua_State* L, int index);

/// Where the function at `index` begins, or the `forward` of a module, with the source line; empty for what is no Lua.
Script::Definition definition_of(lua_State* L, int index);

/// The first argument as it is written where the running function of C is called, such as "n <= 5" of `check(n <= 5)`,
/// whose `name` is "check"; empty where the file cannot be read, or does not show it.
std::string argument_as_written(lua_State* L, const std::string& name);

/// The line of the script that runs now, as it is written; empty where its text is not at hand.
std::string line_as_written(lua_State* L);

/// What graph breaks say of the script that runs in `L`: the line, and the functions on the stack with their source
/// lines (where the file can still be read). `L` must outlive it.
capture::UserCode user_code(lua_State* L);

}  // namespace triage::lua
