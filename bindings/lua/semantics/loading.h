#pragma once
#include <lua.hpp>

namespace triage::lua {

/// Replaces `load`, and where they exist `loadfile`, `dofile` and the searcher of `require`, by ones that rewrite the
/// text they load. Compiled chunks are refused in policies.
void open_loading(lua_State* L);

}  // namespace triage::lua
