#pragma once
#include "bindings/lua/compile/compiled_function.h"

#include <string>

namespace triage::lua {

/// What graphs of an environment hold for besides the tensors that are given, a line each: plain arguments, upvalues,
/// globals, and the plain values in the tables and functions among them. The variables as they are now.
std::string environment_guards(lua_State* L, const CompiledFunction& function,
                               const CompiledFunction::ClosureEnvironment& environment);

}  // namespace triage::lua
