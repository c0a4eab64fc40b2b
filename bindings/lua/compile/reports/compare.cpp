#include "bindings/lua/compile/reports/compare.h"

#include "bindings/lua/backends/lua_backend.h"
#include "bindings/lua/compile/closures/closure_environments.h"
#include "bindings/lua/compile/compiled_function.h"
#include "bindings/lua/state/effects.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/table_fields.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/describe.h"

#include <fmt/format.h>
#include <triage/compare.h>
#include <triage/version.h>

#include <string>
#include <utility>
#include <vector>

namespace triage::lua {
namespace {

const char* const comparison_type = "triage.comparison";
const char* const function_name = "triage.compare";

void refuse_unknown_options(lua_State* L, int index) {
  for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
    const std::string key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : describe(L, -2);
    if (key == "backends") continue;
    const std::string gone = text_if_gone(key);
    throw InputError(gone.empty() ? fmt::format("{}: option `{}` is unknown; there is backends (a list of names and "
                                                "functions)",
                                                function_name, key)
                                  : fmt::format("{}: {}", function_name, gone));
  }
}

using Compared = BackendComparison::Compared;

/// Option `backends`, without `eager`, with which the others are compared.
std::vector<Compared> backends_of_options(lua_State* L, int index, const std::shared_ptr<CallingThread>& caller) {
  lua_getfield(L, index, "backends");
  if (lua_isnil(L, -1)) return {{"aot_eager", find_backend("aot_eager")}, {"fused", find_backend("fused")}};
  if (!lua_istable(L, -1))
    throw InputError(fmt::format("{}: expected a list as option `backends`, got {}", function_name, describe(L, -1)));
  const int list = lua_gettop(L);
  std::vector<Compared> compared;
  for (lua_Integer i = 1; lua_rawgeti(L, list, i) != LUA_TNIL; ++i) {
    const bool named = lua_type(L, -1) == LUA_TSTRING;
    if (!named && !lua_isfunction(L, -1))
      throw InputError(
          fmt::format("{}: expected names and functions in `backends`, got {}", function_name, describe(L, -1)));
    const std::string name = named ? lua_tostring(L, -1) : fmt::format("function {}", i);
    if (name != "eager")
      compared.push_back({name, on_behalf_of(function_name, [&] { return backend_at(L, lua_gettop(L), caller); })});
    lua_settop(L, list);
  }
  if (compared.empty())
    throw InputError(fmt::format(
        "{}: `backends` names none besides eager, with which the others are compared; name fused, for example",
        function_name));
  return compared;
}

void set_difference(lua_State* L, const char* name, const std::optional<ValueDifference>& difference) {
  if (!difference) return;
  lua_createtable(L, 0, 6);
  set_text(L, "value", difference->value);
  lua_pushnumber(L, difference->units);
  lua_setfield(L, -2, "units");
  lua_pushinteger(L, difference->row);
  lua_setfield(L, -2, "row");
  if (!difference->wrong.empty()) set_text(L, "wrong", difference->wrong);
  if (!difference->source.file.empty()) {
    set_text(L, "file", difference->source.file);
    lua_pushinteger(L, difference->source.line);
    lua_setfield(L, -2, "line");
  }
  lua_setfield(L, -2, name);
}

void push_comparison(lua_State* L, const std::vector<GraphComparison>& graphs) {
  bool ok = true;
  std::string all;
  lua_createtable(L, 0, 3);
  lua_createtable(L, static_cast<int>(graphs.size()), 0);
  for (size_t i = 0; i < graphs.size(); ++i) {
    const GraphComparison& graph = graphs[i];
    ok &= graph.ok();
    all += (i ? "\n" : "") + text(graph);
    lua_createtable(L, 0, 7);
    set_text(L, "graph", graph.graph);
    set_text(L, "backend", graph.backend);
    lua_pushinteger(L, static_cast<lua_Integer>(graph.nodes));
    lua_setfield(L, -2, "nodes");
    lua_pushboolean(L, graph.ok());
    lua_setfield(L, -2, "ok");
    if (!graph.failure.empty()) set_text(L, "failure", graph.failure);
    set_difference(L, "result", graph.result);
    set_difference(L, "node", graph.node);
    lua_rawseti(L, -2, static_cast<lua_Integer>(i) + 1);
  }
  lua_setfield(L, -2, "graphs");
  lua_pushboolean(L, ok);
  lua_setfield(L, -2, "ok");
  set_text(L, "text", all);
  luaL_setmetatable(L, comparison_type);
}

int comparison_tostring(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_pushliteral(L, "text");
  lua_rawget(L, 1);
  return 1;
}

}  // namespace

int compare(lua_State* L) {
  check_callable(L, 1, function_name);
  table_argument(L, {2, function_name, "inputs"});
  lua_settop(L, 3);
  if (lua_isnil(L, 3)) lua_newtable(L), lua_replace(L, 3);
  table_argument(L, {3, function_name, "options"});
  refuse_in_selection(L, "`triage.compare`");
  refuse_unknown_options(L, 3);
  if (const int function = compiled_function_of(L, 1); function != LUA_NOREF) {
    lua_rawgeti(L, LUA_REGISTRYINDEX, function);
    lua_replace(L, 1);
  }
  lua_pushnil(L);
  lua_insert(L, 2);  // options of triage.compile; now `inputs` is at 3, and `options` at 4
  CompiledFunction& function = push_compiled(L);
  const int compiled = lua_gettop(L);
  function.options.warn = nullptr;
  function.caller->L = L;
  const BackendComparison comparison(backends_of_options(L, 4, function.caller));
  function.options.compile_with = comparison.backend();
  function.options.backend = "compare";
  function.options.traces = new_traces(function);
  lua_settop(L, compiled);

  const auto count = static_cast<int>(lua_rawlen(L, 3));
  reserve(L, static_cast<size_t>(count) + 1, "too many inputs");
  // With graph breaks, the first call finds the graphs between them, and the second runs them.
  for (int calls = 0; calls < 2 && comparison.graphs().empty(); ++calls) {
    lua_pushcfunction(L, guarded<call_compiled>);
    lua_pushvalue(L, compiled);
    for (int i = 1; i <= count; ++i) lua_rawgeti(L, 3, i);
    lua_call(L, count + 1, 0);
  }
  if (comparison.graphs().empty())
    throw InputError(
        fmt::format("{}: '{}' was not captured, so there is nothing to compare; `triage.explain` says what "
                    "breaks its graphs",
                    function_name, function.name));
  push_comparison(L, comparison.graphs());
  return 1;
}

void open_comparison(lua_State* L) {
  luaL_newmetatable(L, comparison_type);
  lua_pushcfunction(L, guarded<comparison_tostring>);
  lua_setfield(L, -2, "__tostring");
  lua_pop(L, 1);
}

}  // namespace triage::lua
