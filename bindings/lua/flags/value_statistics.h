#pragma once
#include <triage/value_statistics.h>

#include <lua.hpp>

#include <vector>

namespace triage::lua {

/// Pushes a list of tables, one for each location and dtype, with the fields `text`, `json` and `metrics`.
void push_value_statistics(lua_State* L, const std::vector<ValueStatistics>& statistics);

}  // namespace triage::lua
