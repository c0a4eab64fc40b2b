#pragma once
#include <lua.hpp>

/// Lua's `math` on symbolic numbers (number.h): where they only pass through, the graph computes them again.
/// Knows LibTorch only in its implementation.
namespace triage::lua {

/// Every function that `push_math` knows.
inline constexpr const char* kMathOfNumbers[] = {"abs", "acos", "asin",  "atan", "ceil", "cos",
                                                 "deg", "exp",  "floor", "fmod", "log",  "max",
                                                 "min", "rad",  "sin",   "sqrt", "tan",  "tointeger"};

/// Pushes `math.<name>` of the arguments on the stack as a symbolic number. False, and nothing pushed, where none of
/// them is one, or the graph cannot give just what Lua gives.
bool push_math(lua_State* L, const char* name);

}  // namespace triage::lua
