#pragma once
#include <lua.hpp>

/// What a process has captured and compiled, as a file (triage/cache_artifacts.h): for trusted scripts.
namespace triage::lua {

/// triage.save_cache_artifacts(path), triage.load_cache_artifacts(path)
int save_cache_artifacts_(lua_State* L);
int load_cache_artifacts_(lua_State* L);

}  // namespace triage::lua
