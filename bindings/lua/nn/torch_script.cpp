// TorchScript modules from files: their tree, for scripts/prelude/nn.lua to wrap, and their calls.
#include "bindings/lua/flags/script_modules.h"
#include "bindings/lua/nn/nn.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/recording/branch_guard.h"
#include "runtime/capture/recording/recorder.h"

#include <torch/csrc/jit/serialization/import.h>

#include <stdexcept>
#include <string>

namespace triage::lua {
namespace {

using torch::jit::Module;

const char* const script_type = "triage.script_module";

Module& check_script(lua_State* L, int index) {
  auto** holder = static_cast<Module**>(luaL_checkudata(L, index, script_type));
  if (!*holder) luaL_error(L, "this TorchScript module was closed");
  return **holder;
}

int script_gc(lua_State* L) {
  delete std::exchange(*static_cast<Module**>(luaL_checkudata(L, 1, script_type)), nullptr);
  return 0;
}

void push_script(lua_State* L, const Module& module) {
  auto** holder = static_cast<Module**>(lua_newuserdatauv(L, sizeof(Module*), 0));
  *holder = new Module(module);
  luaL_setmetatable(L, script_type);
}

/// Sets field `key` of the table on top of the stack to a list of {name, value}.
template <typename Items, typename Push>
void set_named(lua_State* L, const char* key, const Items& items, const Push& push) {
  lua_newtable(L);
  lua_Integer position = 0;
  for (const auto& item : items) {
    lua_createtable(L, 2, 0);
    lua_pushstring(L, item.name.c_str());
    lua_rawseti(L, -2, 1);
    push(item.value);
    lua_rawseti(L, -2, 2);
    lua_rawseti(L, -2, ++position);
  }
  lua_setfield(L, -2, key);
}

/// Pushes {type, script, training, parameters, buffers, children}, the lists without what lies deeper.
void push_tree(lua_State* L, const Module& module) {
  reserve(L, 0, "modules nested too deep");
  lua_createtable(L, 0, 6);
  const auto name = module.type()->name();
  lua_pushstring(L, name ? name->name().c_str() : "ScriptModule");
  lua_setfield(L, -2, "type");
  push_script(L, module);
  lua_setfield(L, -2, "script");
  lua_pushboolean(L, module.hasattr("training") && module.is_training());
  lua_setfield(L, -2, "training");
  const auto push_value = [L](const at::Tensor& tensor) { push_tensor(L, tensor); };
  set_named(L, "parameters", module.named_parameters(false), push_value);
  set_named(L, "buffers", module.named_buffers(false), push_value);
  set_named(L, "children", module.named_children(), [L](const Module& child) { push_tree(L, child); });
}

/// core.load_script(path) -> tree
int load_script(lua_State* L) {
  const std::string path = luaL_checkstring(L, 1);
  const c10::InferenceMode no_inference(false);
  std::optional<Module> module;
  try {
    module = torch::jit::load(path);
  } catch (const c10::Error& error) {
    throw std::runtime_error(
        "nn.load: cannot read '" + path +
        "' as a TorchScript module (what torch.jit.save writes): " + error.what_without_backtrace());
  }
  push_tree(L, *module);
  return 1;
}

/// core.call_script(script, ...) -> its results: a tuple as several
int call_script(lua_State* L) {
  Module& module = check_script(L, 1);
  capture::graph_break(capture::Break::opaque_module, "a TorchScript module runs operators that capture does not see",
                       "Call it before or after the compiled code, or build its layers with nn and load_state_dict.");
  const auto method = module.find_method("forward");
  if (!method) throw std::invalid_argument("this TorchScript module has no `forward`; call the module that holds it");
  c10::IValue result;
  try {
    result = (*method)(read_script_arguments(L, 2));
  } catch (const c10::Error& error) {
    throw std::runtime_error(std::string("a TorchScript module failed: ") + error.what_without_backtrace());
  }
  return push_script_results(L, result);
}

/// core.train_script(script, training): this module alone, as the Lua modules are walked one by one.
int train_script(lua_State* L) {
  Module& module = check_script(L, 1);
  if (module.hasattr("training")) module.setattr("training", static_cast<bool>(lua_toboolean(L, 2)));
  return 0;
}

}  // namespace

void add_torch_script(lua_State* L) {
  set_script_module_at([](lua_State* state, int index) -> const Module* {
    auto** holder = static_cast<Module**>(luaL_testudata(state, index, script_type));
    return holder ? *holder : nullptr;
  });
  luaL_newmetatable(L, script_type);
  lua_pushcfunction(L, guarded<script_gc>);
  lua_setfield(L, -2, "__gc");
  lua_pushliteral(L, "TorchScript module");
  lua_setfield(L, -2, "__metatable");
  lua_pop(L, 1);
  static const luaL_Reg functions[] = {{"load_script", guarded<load_script>},
                                       {"call_script", guarded<call_script>},
                                       {"train_script", guarded<train_script>},
                                       {nullptr, nullptr}};
  luaL_setfuncs(L, functions, 0);
}

}  // namespace triage::lua
