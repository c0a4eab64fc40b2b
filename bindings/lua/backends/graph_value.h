#pragma once
#include <triage/graph.h>

#include <lua.hpp>

namespace triage::lua {

/// A captured graph as Lua sees it: what a backend written in Lua is given. It reads like a record (`name`, `text`,
/// `inputs`, `constants`, `nodes`, `outputs`; every read gives fresh tables) and runs like a function: `graph(x, y)` or
/// `graph:run{x, y}`. The userdata holds a copy of the graph, so it lives as long as the script likes.
void push_graph(lua_State* L, const graph::Graph& graph);

}  // namespace triage::lua
