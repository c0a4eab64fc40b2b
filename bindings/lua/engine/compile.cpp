#include "bindings/lua/engine/compile.h"

#include "bindings/lua/engine/closure_state.h"
#include "bindings/lua/engine/protected.h"
#include "bindings/lua/export/export.h"
#include "bindings/lua/tensors/torch.h"
#include "runtime/capture/branch_guard.h"
#include "runtime/capture/compiled.h"
#include "runtime/capture/recorder.h"

#include <fmt/format.h>
#include <triage/graph.h>
#include <triage/version.h>

#include <map>

namespace triage::lua {
namespace {

using capture::Compiled;
using capture::Recorder;

/// A Lua function that is compiled, in the state it lives in.
class FunctionScript final : public Script {
 public:
  FunctionScript(lua_State* L, int function, std::string name, bool fullgraph, std::vector<std::string> inputs)
      : L_(L), function_(function), name_(std::move(name)), fullgraph_(fullgraph) {
    signature_.inputs = std::move(inputs);
  }
  const std::string& name() const override { return name_; }
  const Signature& signature() const override { return signature_; }
  bool fullgraph() const override { return fullgraph_; }
  const std::vector<bool>& flags_outputs() const override { return flags_outputs_; }
  std::vector<std::pair<std::string, std::string>> run_tests() override { return {}; }

  /// The calling Lua thread, and the stack index of its arguments: tensors among them are replaced by `inputs`.
  void prepare_call(lua_State* caller, int first_argument) {
    L_ = caller;
    first_argument_ = first_argument;
    results_ = LUA_NOREF;
  }
  /// What the function returned, as a list in the registry, when it ran and gave something else than tensors.
  int take_results() { return std::exchange(results_, LUA_NOREF); }

  std::vector<at::Tensor> call(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor>,
                               std::optional<std::chrono::steady_clock::time_point>) override {
    lua_State* L = L_;
    int last = lua_gettop(L);
    capture::FlagsTracker tracker;
    if (Recorder* recorder = Recorder::current()) recorder->set_where([L] { return current_line(L); });
    luaL_checkstack(L, last + 8, "too many arguments");
    int base = lua_gettop(L);
    lua_rawgeti(L, LUA_REGISTRYINDEX, function_);
    size_t next = 0;
    for (int i = first_argument_; i <= last; ++i)
      test_tensor(L, i) ? push_tensor(L, inputs[next++]) : lua_pushvalue(L, i);
    lua_call(L, last - first_argument_ + 1, LUA_MULTRET);  // errors pass through to the script that called
    std::vector<at::Tensor> results;
    flags_outputs_.clear();
    bool tensors_only = true;
    for (int i = base + 1; i <= lua_gettop(L); ++i) {
      const at::Tensor* tensor = test_tensor(L, i);
      tensors_only &= tensor != nullptr;
      if (!tensor) continue;
      results.push_back(*tensor);
      flags_outputs_.push_back(tracker.is_flags(*tensor));
    }
    if (!tensors_only) {
      if (Recorder* recorder = Recorder::current())
        recorder->graph_break("the function returns a value that is no tensor",
                              "Return tensors only, or do not compile this function.");
      lua_createtable(L, lua_gettop(L) - base, 1);
      for (int i = base + 1; i < lua_gettop(L); ++i) {
        lua_pushvalue(L, i);
        lua_rawseti(L, -2, i - base);
      }
      lua_pushinteger(L, lua_gettop(L) - 1 - base);
      lua_setfield(L, -2, "n");
      results_ = luaL_ref(L, LUA_REGISTRYINDEX);
    }
    lua_settop(L, base);
    return results;
  }

 private:
  lua_State* L_;
  int function_;
  int first_argument_ = 0;
  int results_ = LUA_NOREF;
  std::string name_;
  bool fullgraph_;
  Signature signature_;
  std::vector<bool> flags_outputs_;
};

/// What `triage.compile` returns: one cache of graphs for each world that the function has seen (closure_state).
struct CompiledFunction {
  struct Bucket {
    std::shared_ptr<FunctionScript> script;
    std::unique_ptr<Compiled> compiled;
  };
  int function = LUA_NOREF;
  int anchors = LUA_NOREF;  // a list: what the keys name by address, which therefore stays alive
  std::string name;
  Compiled::Options options;
  std::map<std::string, std::shared_ptr<Bucket>> buckets;  // a call keeps its own alive
  std::shared_ptr<Bucket> last;  // of the last call, still right while the epoch has not moved
  bool odd_arguments_said = false;
  bool running = false;  // the function calls itself: from the inside it is called as it is
  uint64_t last_epoch = 0;
  std::string last_arguments;
};

constexpr size_t max_buckets = 64;
const char* const compiled_type = "triage.compiled";

CompiledFunction& check_compiled(lua_State* L, int index) {
  auto* holder = static_cast<CompiledFunction**>(luaL_checkudata(L, index, compiled_type));
  if (!*holder) luaL_error(L, "this compiled function was closed");
  return **holder;
}

/// Plain arguments are part of the graph (by value and subtype): they come as bytes, tensors as they are. Returns the stack
/// index of an argument that graphs cannot take; 0 where there is none.
int read_arguments(lua_State* L, int first, std::vector<at::Tensor>& tensors, std::string& plain) {
  for (int i = first; i <= lua_gettop(L); ++i) {
    if (const at::Tensor* tensor = test_tensor(L, i)) {
      tensors.push_back(*tensor);
      plain += 't';
    } else if (lua_isinteger(L, i)) {
      plain += 'i' + std::to_string(lua_tointeger(L, i));
    } else if (lua_type(L, i) == LUA_TNUMBER) {
      double number = lua_tonumber(L, i);
      plain += 'd';
      plain.append(reinterpret_cast<const char*>(&number), sizeof(number));
    } else if (lua_type(L, i) == LUA_TSTRING) {
      size_t length = 0;
      const char* text = lua_tolstring(L, i, &length);
      plain += 's' + std::to_string(length) + ':';
      plain.append(text, length);
    } else if (lua_isnoneornil(L, i) || lua_isboolean(L, i)) {
      plain += lua_isnil(L, i) ? 'n' : lua_toboolean(L, i) ? 'T' : 'F';
    } else {
      return i;
    }
  }
  return 0;
}

/// With an argument such as a table the function runs as it is, which is said once; under fullgraph it is an error.
void refuse_argument(lua_State* L, CompiledFunction& function, int index) {
  const std::string what = fmt::format("argument {}: expected a tensor, number, string, boolean or nil, got a {}",
                                       index - 1, luaL_typename(L, index));
  if (function.options.fullgraph) throw InputError("compiled function: " + what);
  if (!std::exchange(function.odd_arguments_said, true) && function.options.warn)
    function.options.warn("function '" + function.name + "' runs as a script on such calls: " + what);
}

/// Keeps the table on top of the stack with those of the other buckets. Pops it.
void add_anchors(lua_State* L, CompiledFunction& function) {
  if (function.anchors == LUA_NOREF) {
    lua_newtable(L);
    function.anchors = luaL_ref(L, LUA_REGISTRYINDEX);
  }
  lua_rawgeti(L, LUA_REGISTRYINDEX, function.anchors);
  lua_insert(L, -2);
  lua_rawseti(L, -2, static_cast<lua_Integer>(lua_rawlen(L, -2)) + 1);
  lua_pop(L, 1);
}

std::shared_ptr<CompiledFunction::Bucket> bucket_for(lua_State* L, CompiledFunction& function,
                                                     const std::string& arguments) {
  if (function.last && function.last_epoch == context(L).epoch && function.last_arguments == arguments)
    return function.last;
  lua_newtable(L);
  lua_rawgeti(L, LUA_REGISTRYINDEX, function.function);
  std::string key = arguments + '|' + closure_state(L, -1, lua_gettop(L) - 1);
  lua_pop(L, 1);
  if (function.buckets.size() >= max_buckets && !function.buckets.count(key)) {
    function.buckets.clear();
    luaL_unref(L, LUA_REGISTRYINDEX, std::exchange(function.anchors, LUA_NOREF));
  }
  std::shared_ptr<CompiledFunction::Bucket>& bucket = function.buckets[key];
  if (!bucket) {
    bucket = std::make_shared<CompiledFunction::Bucket>();
    add_anchors(L, function);
    std::vector<std::string> inputs;
    for (size_t i = 0; i < arguments.size() && i < 64; ++i) inputs.push_back("arg" + std::to_string(i));
    bucket->script =
        std::make_shared<FunctionScript>(L, function.function, function.name, function.options.fullgraph, inputs);
    bucket->compiled = std::make_unique<Compiled>(bucket->script, function.options);
  } else {
    lua_pop(L, 1);
  }
  function.last = bucket;
  function.last_epoch = context(L).epoch;
  function.last_arguments = arguments;
  return bucket;
}

struct Running {
  explicit Running(CompiledFunction& function) : function(function) { function.running = true; }
  ~Running() { function.running = false; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  CompiledFunction& function;
};

int compiled_call(lua_State* L) {
  CompiledFunction& function = check_compiled(L, 1);
  std::vector<at::Tensor> inputs, outputs;
  std::string arguments;
  const int odd = read_arguments(L, 2, inputs, arguments);
  if (odd) refuse_argument(L, function, odd);
  if (Recorder::current() || function.running || odd) {  // part of that graph; a call of itself; not for graphs
    lua_rawgeti(L, LUA_REGISTRYINDEX, function.function);
    lua_replace(L, 1);
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    return lua_gettop(L);
  }
  if (auto* branch = capture::BranchGuard::current())  // the graph's own operators do not ask it
    for (auto& input : inputs) input = branch->guarded(input);
  const std::shared_ptr<CompiledFunction::Bucket> bucket = bucket_for(L, function, arguments);
  {
    const Running running(function);
    bucket->script->prepare_call(L, 2);
    bucket->compiled->run(inputs, {}, std::nullopt, outputs);
  }
  int other = bucket->script->take_results();
  if (other != LUA_NOREF) {
    lua_rawgeti(L, LUA_REGISTRYINDEX, other);
    luaL_unref(L, LUA_REGISTRYINDEX, other);
    lua_getfield(L, -1, "n");
    int count = static_cast<int>(lua_tointeger(L, -1)), list = lua_gettop(L) - 1;
    lua_pop(L, 1);
    luaL_checkstack(L, count, "too many results");
    for (int i = 1; i <= count; ++i) lua_rawgeti(L, list, i);
    return count;
  }
  luaL_checkstack(L, static_cast<int>(outputs.size()), "too many results");
  if (auto* tracker = capture::FlagsTracker::current()) {
    const std::vector<bool> is_flags = bucket->compiled->flags_outputs();
    for (size_t i = 0; i < outputs.size() && i < is_flags.size(); ++i)
      if (is_flags[i]) tracker->add(outputs[i]);
  }
  for (auto& output : outputs) push_tensor(L, std::move(output));
  return static_cast<int>(outputs.size());
}

int compiled_gc(lua_State* L) {
  auto* holder = static_cast<CompiledFunction**>(luaL_checkudata(L, 1, compiled_type));
  if (*holder) luaL_unref(L, LUA_REGISTRYINDEX, (*holder)->function);
  if (*holder) luaL_unref(L, LUA_REGISTRYINDEX, (*holder)->anchors);
  delete std::exchange(*holder, nullptr);
  return 0;
}

int compiled_tostring(lua_State* L) {
  const CompiledFunction& function = check_compiled(L, 1);
  size_t graphs = 0;
  for (const auto& [key, bucket] : function.buckets) graphs += bucket->compiled->entries().size();
  lua_pushfstring(L, "compiled function %s (%d %s)", function.name.c_str(), static_cast<int>(graphs),
                  graphs == 1 ? "graph" : "graphs");
  return 1;
}

/// A function, or what can be called like one, such as a module.
void check_callable(lua_State* L, int index) {
  if (luaL_getmetafield(L, index, "__call") == LUA_TNIL)
    luaL_checktype(L, index, LUA_TFUNCTION);
  else
    lua_pop(L, 1);
}

std::string function_name(lua_State* L, int index) {
  if (!lua_isfunction(L, index)) {
    if (luaL_getmetafield(L, index, "__name") == LUA_TNIL) return "callable";
    std::string name = lua_tostring(L, -1);
    lua_pop(L, 1);
    return name;
  }
  lua_Debug info;
  lua_pushvalue(L, index);
  lua_getinfo(L, ">S", &info);
  return std::string(info.short_src) + ":" + std::to_string(info.linedefined);
}

void read_compile_options(lua_State* L, int index, CompiledFunction& function) {
  if (lua_isnoneornil(L, index)) return;
  luaL_checktype(L, index, LUA_TTABLE);
  lua_pushnil(L);
  while (lua_next(L, index)) {
    std::string key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
    if (key == "fullgraph" && lua_isboolean(L, -1))
      function.options.fullgraph = lua_toboolean(L, -1);
    else if (key == "backend" && lua_type(L, -1) == LUA_TSTRING)
      function.options.backend = lua_tostring(L, -1);
    else if (key == "name" && lua_type(L, -1) == LUA_TSTRING)
      function.name = lua_tostring(L, -1);
    else
      throw InputError(
          "triage.compile: option '" + (key.empty() ? std::string("?") : key) +
          "' is unknown or has the wrong type. Options: fullgraph (boolean), backend (string), name (string).");
    lua_pop(L, 1);
  }
}

/// Pushes a new compiled function for the function at stack index 1 with options at index 2.
CompiledFunction& push_compiled(lua_State* L) {
  check_callable(L, 1);
  auto function = std::make_unique<CompiledFunction>();
  function->name = function_name(L, 1);
  function->options.protect_inputs = false;
  function->options.warn = [&context = context(L)](const std::string& text) {
    if (context.print) context.print("triage: " + text);
  };
  read_compile_options(L, 2, *function);
  find_backend(function->options.backend);  // an unknown name is an error now, not at the first call
  lua_pushvalue(L, 1);
  function->function = luaL_ref(L, LUA_REGISTRYINDEX);
  auto** holder = static_cast<CompiledFunction**>(lua_newuserdatauv(L, sizeof(CompiledFunction*), 0));
  *holder = function.release();
  luaL_setmetatable(L, compiled_type);
  return **holder;
}

/// triage.compile(fn, {fullgraph, backend, name})
int compile(lua_State* L) {
  push_compiled(L);
  return 1;
}

/// triage.explain(fn, ...): runs fn once on the arguments, and says what was captured.
int explain(lua_State* L) {
  check_callable(L, 1);
  int count = lua_gettop(L) - 1;
  lua_pushnil(L);
  lua_insert(L, 2);  // no options
  CompiledFunction& function = push_compiled(L);
  lua_insert(L, 3);
  lua_pushcfunction(L, guarded<compiled_call>);
  lua_pushvalue(L, 3);
  for (int i = 0; i < count; ++i) lua_pushvalue(L, 4 + i);
  lua_call(L, count + 1, 0);
  std::vector<std::string> breaks, graphs, guards;
  size_t ops = 0;
  for (const auto& [key, bucket] : function.buckets) {
    for (const auto& text : bucket->compiled->graph_breaks()) breaks.push_back(text);
    for (const capture::Entry* entry : bucket->compiled->entries()) {
      graphs.push_back(graph::print(*entry->graph));
      guards.push_back(entry->guards.text(bucket->script->signature().inputs));
      ops += entry->graph->nodes().size();
    }
  }
  auto set_list = [L](const char* name, const std::vector<std::string>& items) {
    lua_createtable(L, static_cast<int>(items.size()), 0);
    for (size_t i = 0; i < items.size(); ++i) {
      lua_pushlstring(L, items[i].data(), items[i].size());
      lua_rawseti(L, -2, static_cast<lua_Integer>(i + 1));
    }
    lua_setfield(L, -2, name);
  };
  lua_createtable(L, 0, 6);
  for (auto [name, number] :
       {std::pair("graph_count", graphs.size()), {"graph_break_count", breaks.size()}, {"op_count", ops}}) {
    lua_pushinteger(L, static_cast<lua_Integer>(number));
    lua_setfield(L, -2, name);
  }
  set_list("break_reasons", breaks);
  set_list("graphs", graphs);
  set_list("guards", guards);
  std::string text =
      fmt::format("Graph Count: {}\nGraph Break Count: {}\nOp Count: {}\n", graphs.size(), breaks.size(), ops);
  for (size_t i = 0; i < breaks.size(); ++i) text += fmt::format("Break Reason {}: {}\n", i + 1, breaks[i]);
  for (size_t i = 0; i < graphs.size(); ++i) text += fmt::format("\n{}Out Guards:\n{}", graphs[i], guards[i]);
  lua_pushlstring(L, text.data(), text.size());
  lua_setfield(L, -2, "text");
  luaL_setmetatable(L, "triage.explanation");
  return 1;
}

int explanation_tostring(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_pushliteral(L, "text");
  lua_rawget(L, 1);
  return 1;
}

int is_compiling(lua_State* L) {
  lua_pushboolean(L, Recorder::current() != nullptr);
  return 1;
}

int graph_break(lua_State* L) {
  std::string message = luaL_optstring(L, 1, "triage.graph_break()");
  if (Recorder* recorder = Recorder::current()) recorder->graph_break(message, "");
  return 0;
}

int list_backends_(lua_State* L) {
  auto names = list_backends();
  lua_createtable(L, static_cast<int>(names.size()), 0);
  for (size_t i = 0; i < names.size(); ++i) {
    lua_pushstring(L, names[i].c_str());
    lua_rawseti(L, -2, static_cast<lua_Integer>(i + 1));
  }
  return 1;
}

}  // namespace

int compiled_function_of(lua_State* L, int index) {
  auto* holder = static_cast<CompiledFunction**>(luaL_testudata(L, index, compiled_type));
  return holder && *holder ? (*holder)->function : LUA_NOREF;
}

void push_triage(lua_State* L) {
  static const luaL_Reg compiled_methods[] = {{"__call", guarded<compiled_call>},
                                              {"__gc", guarded<compiled_gc>},
                                              {"__tostring", guarded<compiled_tostring>},
                                              {nullptr, nullptr}};
  luaL_newmetatable(L, compiled_type);
  luaL_setfuncs(L, compiled_methods, 0);
  lua_pushliteral(L, "compiled function");
  lua_setfield(L, -2, "__metatable");
  lua_pop(L, 1);
  luaL_newmetatable(L, "triage.explanation");
  lua_pushcfunction(L, guarded<explanation_tostring>);
  lua_setfield(L, -2, "__tostring");
  lua_pop(L, 1);

  static const luaL_Reg functions[] = {{"compile", guarded<compile>},
                                       {"explain", guarded<explain>},
                                       {"is_compiling", guarded<is_compiling>},
                                       {"graph_break", guarded<graph_break>},
                                       {"list_backends", guarded<list_backends_>},
                                       {nullptr, nullptr}};
  luaL_newlib(L, functions);
  lua_pushliteral(L, TRIAGE_VERSION);
  lua_setfield(L, -2, "version");
  add_export(L);
  push_core(L);
  lua_getfield(L, -1, "instrument");
  lua_setfield(L, -3, "instrument");
  lua_pop(L, 1);
}

}  // namespace triage::lua
