#include "bindings/lua/backends/lua_backend.h"

#include "bindings/lua/backends/graph_value.h"
#include "bindings/lua/state/effects.h"
#include "bindings/lua/state/protected.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/state/userdata.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/recording/branch_guard.h"
#include "runtime/memory/overlap.h"
#include "runtime/messages/debugging/repro_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace triage::lua {
namespace {

const char registry_key = 0;  // its address is the key of the table name -> function

/// A value kept in the registry of its state. Whoever holds one lives in userdata of that state, so the state is there
/// still.
class RegistryValue {
 public:
  /// Takes the value on top of the stack.
  explicit RegistryValue(lua_State* L) {
    lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_MAINTHREAD);
    main_ = lua_tothread(L, -1);
    lua_pop(L, 1);
    reference_ = luaL_ref(L, LUA_REGISTRYINDEX);
  }
  ~RegistryValue() { luaL_unref(main_, LUA_REGISTRYINDEX, reference_); }
  RegistryValue(const RegistryValue&) = delete;
  RegistryValue& operator=(const RegistryValue&) = delete;
  void push(lua_State* L) const { lua_rawgeti(L, LUA_REGISTRYINDEX, reference_); }

 private:
  lua_State* main_;
  int reference_;
};

bool is_callable(lua_State* L, int index) {
  if (lua_isfunction(L, index)) return true;
  if (luaL_getmetafield(L, index, "__call") == LUA_TNIL) return false;
  lua_pop(L, 1);
  return true;
}

/// What a Lua backend returned. Runs on the thread of its interpreter only, as all that such a backend compiles.
class LuaExecutable final : public Executable {
 public:
  LuaExecutable(std::string backend, const graph::Graph& graph, std::shared_ptr<const CallingThread> caller,
                std::unique_ptr<RegistryValue> callable)
      : backend_(std::move(backend)),
        graph_(graph.name()),
        num_outputs_(graph.outputs().size()),
        caller_(std::move(caller)),
        callable_(std::move(callable)) {}

  void run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs, const CallContext&) const override {
    const capture::OutsideBranches outside;  // a graph asks no branch around the call
    in_protected_call(caller_->L, [&](lua_State* L) {
      reserve(L, inputs.size(), "too many inputs");
      callable_->push(L);
      for (const at::Tensor& input : inputs) push_tensor(L, input);
      call_for_all(L, static_cast<int>(inputs.size()));
      take_results(L, inputs, outputs);
    });
  }

 private:
  void take_results(lua_State* L, at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs) const {
    const auto count = static_cast<size_t>(lua_gettop(L));
    if (count != num_outputs_)
      throw InputError(fmt::format(
          "the function that backend `{}` returned for graph `{}` gave {} results; the graph has {} outputs", backend_,
          graph_, count, num_outputs_));
    for (int i = 1; i <= static_cast<int>(count); ++i) {
      const at::Tensor* tensor = test_tensor(L, i);
      if (!tensor)
        throw InputError(fmt::format(
            "the function that backend `{}` returned for graph `{}` gave a {} as result {}; expected a tensor",
            backend_, graph_, luaL_typename(L, i), i));
      outputs.push_back(separate(*tensor, inputs));
    }
  }

  /// No output shares memory with an input unless it is that input.
  static at::Tensor separate(const at::Tensor& output, at::ArrayRef<at::Tensor> inputs) {
    bool shares = false;
    for (const at::Tensor& input : inputs) {
      if (output.is_same(input)) return output;
      shares |= share_memory(input, output);
    }
    return shares ? output.clone() : output;
  }

  std::string backend_, graph_;
  size_t num_outputs_;
  std::shared_ptr<const CallingThread> caller_;
  std::unique_ptr<RegistryValue> callable_;
};

std::unique_ptr<Executable> compile(const std::string& name, const RegistryValue& function,
                                    const std::shared_ptr<const CallingThread>& caller, const graph::Graph& graph,
                                    const std::vector<at::Tensor>& examples) {
  std::unique_ptr<RegistryValue> callable;
  in_protected_call(caller->L, [&](lua_State* L) {
    function.push(L);
    push_graph(L, graph);
    lua_createtable(L, static_cast<int>(examples.size()), 0);
    for (size_t i = 0; i < examples.size(); ++i) {
      push_tensor(L, examples[i]);
      lua_rawseti(L, -2, static_cast<lua_Integer>(i) + 1);
    }
    lua_call(L, 2, 1);
    if (!is_callable(L, -1))
      throw InputError(
          fmt::format("backend `{}` returned a {} for graph `{}`; expected a callable that takes the graph's inputs, "
                      "such as a function or the graph itself",
                      name, luaL_typename(L, -1), graph.name()));
    callable = std::make_unique<RegistryValue>(L);
  });
  return std::make_unique<LuaExecutable>(name, graph, caller, std::move(callable));
}

/// Pushes the function registered as `name`, or nothing.
bool push_own(lua_State* L, const char* name) {
  push_registry_table(L, &registry_key);
  const bool found = lua_getfield(L, -1, name) != LUA_TNIL;
  if (!found) lua_pop(L, 1);
  lua_remove(L, found ? -2 : -1);
  return found;
}

/// The minifier can take the file that registers a backend, where the script itself is another one.
void note_file(lua_State* L, const std::string& backend) {
  lua_Debug info;
  if (context(L).sandboxed || !lua_getstack(L, 1, &info) || !lua_getinfo(L, "S", &info) || *info.source != '@') return;
  const std::string file = info.source + 1;
  messages::note_backend_file(backend, file == context(L).chunk ? "" : std::filesystem::absolute(file).string());
}

}  // namespace

int register_backend_(lua_State* L) {
  const std::string name = text_argument(L, {1, "triage.register_backend", "name"});
  if (name.empty() || name.find(':') != std::string::npos)
    throw InputError(fmt::format(
        "triage.register_backend: the name '{}' is not valid; a name must not be empty or contain a colon", name));
  if (!is_callable(L, 2))
    throw InputError(fmt::format(
        "triage.register_backend: backend '{}' is a {}; expected a function that takes a graph and example inputs",
        name, luaL_typename(L, 2)));
  const auto others = list_backends();
  if (std::find(others.begin(), others.end(), name) != others.end())
    throw InputError(
        fmt::format("triage.register_backend: there is a backend '{}' already; choose another name", name));
  refuse_in_selection(L, "`triage.register_backend`");
  push_registry_table(L, &registry_key);
  lua_pushvalue(L, 2);
  lua_setfield(L, -2, name.c_str());
  note_file(L, name);
  return 0;
}

std::vector<std::string> backends_of(lua_State* L) {
  std::vector<std::string> names = list_backends();
  push_registry_table(L, &registry_key);
  for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) names.emplace_back(lua_tostring(L, -2));
  lua_pop(L, 1);
  std::sort(names.begin(), names.end());
  return names;
}

Backend backend_at(lua_State* L, int index, std::shared_ptr<const CallingThread> caller) {
  std::string name = "of the script";
  if (lua_type(L, index) == LUA_TSTRING) {
    name = lua_tostring(L, index);
    if (!push_own(L, name.c_str())) return find_backend(name);
  } else {
    if (context(L).sandboxed)
      throw InputError(
          "triage.compile: a policy gives its backend by name; only scripts of triage exec may give a function");
    lua_pushvalue(L, index);
  }
  auto function = std::make_shared<RegistryValue>(L);
  return [name, function, caller](const graph::Graph& graph, const std::vector<at::Tensor>& examples) {
    return compile(name, *function, caller, graph, examples);
  };
}

}  // namespace triage::lua
