#include "bindings/lua/backends/graph_value.h"

#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/tensor.h"
#include "bindings/lua/values/tensor_list.h"
#include "runtime/capture/recording/branch_guard.h"
#include "runtime/graph/text/describe.h"

#include <fmt/format.h>
#include <triage/backend.h>

#include <new>
#include <string_view>
#include <unordered_map>

namespace triage::lua {
namespace {

using graph::Graph;
using graph::Node;
using graph::Operand;
using graph::Value;

const char* const graph_type = "triage.graph";

struct GraphValue {
  std::shared_ptr<const Graph> graph;
  std::shared_ptr<const Executable> executable;  // made by the first call
};

GraphValue& check_graph(lua_State* L, int index) {
  auto* value = static_cast<GraphValue*>(luaL_checkudata(L, index, graph_type));
  if (!value->graph) luaL_error(L, "this graph was closed");
  return *value;
}

void push_text(lua_State* L, const std::string& text) { lua_pushlstring(L, text.data(), text.size()); }

void set_text(lua_State* L, const char* field, const std::string& text) {
  push_text(L, text);
  lua_setfield(L, -2, field);
}

void append_text(lua_State* L, const std::string& text) {
  push_text(L, text);
  lua_rawseti(L, -2, static_cast<lua_Integer>(lua_rawlen(L, -2)) + 1);
}

/// The name of a node is that of its first result, as in the printed graph.
std::string name_of(const Node& node) {
  return node.results.empty() ? graph::op_name(node.op) : graph::describe(*node.results[0]);
}

/// A value by its name, a plain number or boolean as it is, all else as the printed graph writes it.
void push_operand(lua_State* L, const Operand& operand, const graph::ArgumentType& type) {
  reserve(L, 0, "lists nested too deep");
  if (const Value* value = operand.value()) return push_text(L, graph::describe(*value));
  if (const auto* items = operand.list()) {
    lua_createtable(L, static_cast<int>(items->size()), 0);
    for (size_t i = 0; i < items->size(); ++i) {
      push_operand(L, (*items)[i], type);
      lua_rawseti(L, -2, static_cast<lua_Integer>(i) + 1);
    }
    return;
  }
  const c10::IValue& constant = *operand.constant();
  const bool number = type.kind == graph::Kind::tensor || type.kind == graph::Kind::number ||
                      type.kind == graph::Kind::integer || type.kind == graph::Kind::real;
  if (number && constant.isInt()) return lua_pushinteger(L, constant.toInt());
  if (number && constant.isDouble()) return lua_pushnumber(L, constant.toDouble());
  if (constant.isBool()) return lua_pushboolean(L, constant.toBool());
  if (constant.isString()) return push_text(L, constant.toStringRef());
  if (constant.isList() && (constant.isIntList() || constant.isDoubleList() || constant.isBoolList())) {
    lua_newtable(L);
    lua_Integer index = 0;
    for (const c10::IValue& item : constant.toListRef()) {
      push_operand(L, Operand(item), type);
      lua_rawseti(L, -2, ++index);
    }
    return;
  }
  push_text(L, graph::literal(constant, type));
}

void append_values(lua_State* L, const Operand& operand) {
  if (const Value* value = operand.value()) append_text(L, graph::describe(*value));
  if (const auto* items = operand.list())
    for (const Operand& item : *items) append_values(L, item);
}

void visit_values(const Operand& operand, const std::function<void(const Value*)>& visit) {
  if (const Value* value = operand.value()) visit(value);
  if (const auto* items = operand.list())
    for (const Operand& item : *items) visit_values(item, visit);
}

using Users = std::unordered_map<const Value*, std::vector<const Node*>>;

Users users_of(const Graph& graph) {
  Users users;
  for (const auto& node : graph.nodes())
    for (const Operand& operand : node->operands)
      visit_values(operand, [&](const Value* value) {
        auto& list = users[value];
        if (list.empty() || list.back() != node.get()) list.push_back(node.get());
      });
  return users;
}

void push_node(lua_State* L, const Node& node, const Users& users) {
  lua_createtable(L, 0, 8);
  set_text(L, "op", graph::op_name(node.op));
  set_text(L, "name", name_of(node));
  lua_newtable(L);
  for (const Operand& operand : node.operands) append_values(L, operand);
  lua_setfield(L, -2, "inputs");
  lua_newtable(L);
  const auto& arguments = node.op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue* constant = node.operands[i].constant();
    if (constant && constant->isNone()) continue;
    push_operand(L, node.operands[i], graph::type_of(arguments[i]));
    lua_setfield(L, -2, arguments[i].name().c_str());
  }
  lua_setfield(L, -2, "arguments");
  lua_newtable(L);
  for (const Value* result : node.results) append_text(L, graph::describe(*result));
  lua_setfield(L, -2, "outputs");
  lua_newtable(L);
  for (const Value* result : node.results)
    if (auto found = users.find(result); found != users.end())
      for (const Node* user : found->second) append_text(L, name_of(*user));
  lua_setfield(L, -2, "users");
  if (!node.source.file.empty()) {
    set_text(L, "file", node.source.file);
    lua_pushinteger(L, node.source.line);
    lua_setfield(L, -2, "line");
    set_text(L, "source", node.source.file + ":" + std::to_string(node.source.line));
  }
}

void push_nodes(lua_State* L, const Graph& graph) {
  const Users users = users_of(graph);
  lua_createtable(L, static_cast<int>(graph.nodes().size()), 0);
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    push_node(L, *graph.nodes()[i], users);
    lua_rawseti(L, -2, static_cast<lua_Integer>(i) + 1);
  }
}

/// Appends {name, kind, dtype, shape} to the list on top.
void append_declaration(lua_State* L, const Value& value, const char* kind) {
  lua_createtable(L, 0, 4);
  set_text(L, "name", graph::describe(value));
  set_text(L, "kind", kind);
  if (value.meta) {
    set_text(L, "dtype", graph::dtype_name(value.meta->dtype));
    lua_createtable(L, static_cast<int>(value.meta->sizes.size()), 0);
    for (size_t i = 0; i < value.meta->sizes.size(); ++i) {
      lua_pushinteger(L, value.meta->sizes[i]);
      lua_rawseti(L, -2, static_cast<lua_Integer>(i) + 1);
    }
    lua_setfield(L, -2, "shape");
  }
  lua_rawseti(L, -2, static_cast<lua_Integer>(lua_rawlen(L, -2)) + 1);
}

/// The tensors at stack indices from `first` on; runs the graph on them, and pushes its outputs.
int run(lua_State* L, GraphValue& value, const std::vector<at::Tensor>& inputs) {
  if (!value.executable) value.executable = find_backend("eager")(*value.graph, inputs);
  std::vector<at::Tensor> outputs;
  {
    const capture::OutsideBranches outside;  // the graph's own operators ask no branch around the call
    value.executable->run(inputs, outputs, {context(L).deadline});
  }
  reserve(L, outputs.size(), "too many results");
  for (at::Tensor& output : outputs) push_tensor(L, std::move(output));
  return static_cast<int>(outputs.size());
}

int graph_call(lua_State* L) {
  GraphValue& value = check_graph(L, 1);
  std::vector<at::Tensor> inputs;
  for (int i = 2; i <= lua_gettop(L); ++i) inputs.push_back(check_tensor(L, i));
  return run(L, value, inputs);
}

int graph_run(lua_State* L) {
  at_most(L, 2, "graph:run");
  GraphValue& value = check_graph(L, 1);
  return run(L, value, check_tensor_list(L, 2, "graph:run"));
}

int graph_index(lua_State* L) {
  const Graph& graph = *check_graph(L, 1).graph;
  const std::string_view field = luaL_checkstring(L, 2);
  if (field == "name") {
    push_text(L, graph.name());
  } else if (field == "text") {
    push_text(L, graph::print(graph));
  } else if (field == "nodes") {
    push_nodes(L, graph);
  } else if (field == "inputs") {
    lua_newtable(L);
    for (const auto& input : graph.inputs())
      append_declaration(L, *input.value, input.kind == graph::InputKind::param ? "param" : "tensor");
  } else if (field == "constants") {
    lua_newtable(L);
    for (const auto& constant : graph.constants())
      append_declaration(L, *constant.value, constant.variable ? "variable" : "constant");
  } else if (field == "outputs") {
    lua_newtable(L);
    for (const Value* output : graph.outputs()) append_text(L, graph::describe(*output));
  } else if (field == "run") {
    lua_pushcfunction(L, guarded<graph_run>);
  } else {
    throw InputError(
        fmt::format("a graph has no field `{}`; it has name, text, inputs, constants, nodes, outputs and run", field));
  }
  return 1;
}

int graph_tostring(lua_State* L) {
  push_text(L, graph::print(*check_graph(L, 1).graph));
  return 1;
}

int graph_gc(lua_State* L) {
  auto* value = static_cast<GraphValue*>(luaL_checkudata(L, 1, graph_type));
  value->graph.reset();
  value->executable.reset();
  return 0;
}

}  // namespace

void push_graph(lua_State* L, const Graph& graph) {
  new (lua_newuserdatauv(L, sizeof(GraphValue), 0)) GraphValue{std::make_shared<const Graph>(graph.clone()), nullptr};
  static const luaL_Reg methods[] = {{"__index", guarded<graph_index>},
                                     {"__call", guarded<graph_call>},
                                     {"__tostring", guarded<graph_tostring>},
                                     {"__gc", guarded<graph_gc>},
                                     {nullptr, nullptr}};
  if (luaL_newmetatable(L, graph_type)) {
    luaL_setfuncs(L, methods, 0);
    lua_pushliteral(L, "graph");
    lua_setfield(L, -2, "__metatable");
  }
  lua_setmetatable(L, -2);
}

}  // namespace triage::lua
