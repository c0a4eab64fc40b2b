// Stands before Lua's own lua.hpp where the library exports C++ names (Dependencies.cmake): that one declares C names.
#pragma once

#include <lua.h>

#include <lauxlib.h>
#include <lualib.h>
