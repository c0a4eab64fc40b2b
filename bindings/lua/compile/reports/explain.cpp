#include "bindings/lua/compile/compiled_function.h"

#include "bindings/lua/compile/closures/closure_environments.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/table_fields.h"
#include "bindings/lua/values/arguments.h"
#include "runtime/backends/fused/outside_loops.h"
#include "runtime/backends/unmasked_rows.h"
#include "runtime/capture/replay/trace_tree.h"
#include "runtime/capture/reports/compile_clock.h"
#include "runtime/graph/text/describe.h"

#include <fmt/format.h>
#include <triage/graph.h>

#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

// triage.explain: what was captured of a function, as a table and as a text in the order in which torch.compile's says
// it.
namespace triage::lua {
namespace {

const char* const explanation_type = "triage.explanation";

struct Explanation {
  std::vector<capture::GraphBreak> breaks;
  std::vector<std::shared_ptr<const graph::Graph>> graphs;
  std::optional<UnmaskedRows> unmasked_rows;
  std::vector<std::string> guards;  // of the first graphs, a line each; those between breaks have none, the script runs
  std::vector<std::vector<std::string>> outside_loops;  // of backend `fused`: for each graph its calls that are in none
  CompileTimes times;
  CacheStatistics cache;

  size_t num_ops() const {
    size_t ops = 0;
    for (const auto& graph : graphs) ops += graph->nodes().size();
    return ops;
  }
};

Explanation explanation_of(const CompiledFunction& function) {
  Explanation all;
  if (function.odd_argument) all.breaks.push_back(*function.odd_argument);
  for (const CompiledFunction::CachePartition* partition : partitions_in_order(function)) {
    for (const capture::GraphBreak& graph_break : partition->compiled->breaks()) all.breaks.push_back(graph_break);
    for (const capture::CacheEntry* entry : partition->compiled->entries()) {
      all.graphs.push_back(entry->graph);
      all.guards.push_back(partition->compiled->guards_text(entry->guards, partition->script->signature().inputs));
    }
  }
  for (const auto& segment : function.options.traces->segments) all.graphs.push_back(segment.graph);
  all.cache = statistics_of(function);
  if (all.cache.loops.count() > 0)
    for (const auto& graph : all.graphs) all.outside_loops.push_back(fused::calls_outside_loops(*graph));
  all.times = function.options.clock->times();
  return all;
}

std::vector<std::string> operators_of(const graph::Graph& graph) {
  std::vector<std::string> names;
  for (const auto& node : graph.nodes()) names.push_back(graph::op_name(node->op));
  return names;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string indented(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += (line.empty() ? "" : "    " + line) + "\n";
  return text;
}

std::string text_of(const Explanation& all) {
  std::string text = fmt::format("Graph Count: {}\nGraph Break Count: {}\nOp Count: {}\nBreak Reasons:\n",
                                 all.graphs.size(), all.breaks.size(), all.num_ops());
  for (size_t i = 0; i < all.breaks.size(); ++i)
    text += fmt::format("  Break Reason {}:\n{}", i + 1, indented(lines_of(all.breaks[i].text())));
  text += "Ops per Graph:\n";
  for (size_t i = 0; i < all.graphs.size(); ++i)
    text += fmt::format("  Ops {}:\n{}", i + 1, indented(operators_of(*all.graphs[i])));
  text += "Out Guards:\n";
  for (size_t i = 0; i < all.guards.size(); ++i)
    text += fmt::format("  Graph {}:\n{}", i + 1, indented(lines_of(all.guards[i])));
  if (all.guards.size() < all.graphs.size())
    text +=
        "  none between graph breaks: the script runs on every call, and triage checks that its operators are the "
        "recorded ones\n";
  if (all.unmasked_rows)
    text += fmt::format("Masked Rows:\n  may reach gradients, because {}\n", with_place(*all.unmasked_rows));
  text += fmt::format("Compile Times:\n  capture {:.6f} s\n  backend {:.6f} s\n", all.times.capture, all.times.backend);
  text += fmt::format("Cache:\n  whole calls {}, between breaks {}, retired {}\n  {} bytes\n", all.cache.graphs,
                      all.cache.segments, all.cache.retired, all.cache.bytes);
  const LoopTiers& loops = all.cache.loops;
  if (loops.count() > 0)
    text += fmt::format("Fused Loops:\n  tapes {}, kernels of a GPU {}, neither {}\n", loops.tapes, loops.kernels,
                        loops.unfused);
  std::string outside;
  for (size_t i = 0; i < all.outside_loops.size(); ++i)
    if (!all.outside_loops[i].empty()) outside += fmt::format("  Graph {}:\n{}", i + 1, indented(all.outside_loops[i]));
  if (!outside.empty()) text += "Outside of Loops:\n" + outside;
  for (const auto& graph : all.graphs) text += "\n" + graph::print(*graph);
  return text;
}

void push_item(lua_State* L, const std::string& item) {
  charge_text(L, item.size());
  lua_pushlstring(L, item.data(), item.size());
}

template <typename Item>
void push_item(lua_State* L, const std::vector<Item>& items) {
  lua_createtable(L, static_cast<int>(items.size()), 0);
  for (size_t i = 0; i < items.size(); ++i) {
    push_item(L, items[i]);
    lua_rawseti(L, -2, static_cast<lua_Integer>(i + 1));
  }
}

/// Sets field `name` of the table on top of the stack to a list of strings, or of lists of them.
template <typename Item>
void set_list(lua_State* L, const char* name, const std::vector<Item>& items) {
  push_item(L, items);
  lua_setfield(L, -2, name);
}

void push_times(lua_State* L, const CompileTimes& times) {
  lua_createtable(L, 0, 2);
  lua_pushnumber(L, times.capture);
  lua_setfield(L, -2, "capture");
  lua_pushnumber(L, times.backend);
  lua_setfield(L, -2, "backend");
}

void push_explanation(lua_State* L, const Explanation& all) {
  std::vector<std::string> reasons, stacks, graphs, ids;
  std::vector<std::vector<std::string>> ops, guards(all.graphs.size());
  for (const capture::GraphBreak& graph_break : all.breaks) {
    reasons.push_back(graph_break.brief());
    stacks.push_back(graph_break.user_code);
    ids.emplace_back(capture::info(graph_break.kind).id);
  }
  for (const auto& graph : all.graphs) {
    graphs.push_back(graph::print(*graph));
    ops.push_back(operators_of(*graph));
  }
  for (size_t i = 0; i < all.guards.size(); ++i) guards[i] = lines_of(all.guards[i]);
  lua_createtable(L, 0, 15);
  set_integer(L, "graph_count", static_cast<lua_Integer>(all.graphs.size()));
  set_integer(L, "graph_break_count", static_cast<lua_Integer>(all.breaks.size()));
  set_integer(L, "op_count", static_cast<lua_Integer>(all.num_ops()));
  set_list(L, "break_reasons", reasons);
  set_list(L, "break_ids", ids);
  set_list(L, "user_stacks", stacks);
  set_list(L, "graphs", graphs);
  set_list(L, "ops_per_graph", ops);
  set_list(L, "guards", all.guards);
  set_list(L, "out_guards", guards);
  set_list(L, "outside_loops", all.outside_loops);
  if (all.unmasked_rows) {
    push_item(L, with_place(*all.unmasked_rows));
    lua_setfield(L, -2, "unmasked_rows");
  }
  push_times(L, all.times);
  lua_setfield(L, -2, "compile_times");
  push_statistics(L, all.cache);
  lua_setfield(L, -2, "cache");
  push_item(L, text_of(all));
  lua_setfield(L, -2, "text");
  luaL_setmetatable(L, explanation_type);
}

int explanation_tostring(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_pushliteral(L, "text");
  lua_rawget(L, 1);
  return 1;
}

}  // namespace

/// triage.explain(fn, ...): runs fn once on the arguments, and says what was captured.
int explain(lua_State* L) {
  check_callable(L, 1, "triage.explain");
  if (const CompiledFunction* compiled = test_compiled(L, 1)) {  // the function it was made of is explained
    lua_rawgeti(L, LUA_REGISTRYINDEX, compiled->function);
    lua_replace(L, 1);
  }
  const int count = lua_gettop(L) - 1;
  lua_pushnil(L);
  lua_insert(L, 2);  // no options
  CompiledFunction& function = push_compiled(L);
  function.options.warn = nullptr;  // the explanation says it
  lua_insert(L, 3);
  reserve(L, static_cast<size_t>(count), "too many arguments");
  lua_pushcfunction(L, guarded<call_compiled>);
  lua_pushvalue(L, 3);
  for (int i = 0; i < count; ++i) lua_pushvalue(L, 4 + i);
  const auto unmasked = std::make_shared<std::optional<UnmaskedRows>>();  // an error leaves this function early
  function.options.masked_rows_of_graph = [unmasked](const std::optional<UnmaskedRows>& of_graph) {
    if (!*unmasked) *unmasked = of_graph;
  };
  const int before = lua_gettop(L) - count - 2;
  call_for_all(L, count + 1);
  bool has_gradients = false;
  for (int i = before + 1; i <= lua_gettop(L); ++i)
    if (const at::Tensor* result = test_tensor(L, i)) has_gradients |= result->requires_grad();
  lua_settop(L, before);
  function.options.masked_rows_of_graph = nullptr;
  Explanation all = explanation_of(function);
  if (!all.breaks.empty() && has_gradients)
    *unmasked = unmasked_by_break(all.breaks.front().what, all.breaks.front().where);
  all.unmasked_rows = *unmasked;
  push_explanation(L, all);
  return 1;
}

void open_explanation(lua_State* L) {
  luaL_newmetatable(L, explanation_type);
  lua_pushcfunction(L, guarded<explanation_tostring>);
  lua_setfield(L, -2, "__tostring");
  lua_pop(L, 1);
}

}  // namespace triage::lua
