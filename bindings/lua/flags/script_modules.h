#pragma once
#include <lua.hpp>

namespace torch::jit {
struct Module;
}

namespace triage::lua {

/// How a TorchScript module is found behind a Lua value: null where the value is none. Whoever gives scripts such modules
/// says so once, when the program starts; until then no value is one.
using ScriptModuleAt = const torch::jit::Module* (*)(lua_State* L, int index);
void set_script_module_at(ScriptModuleAt find);
const torch::jit::Module* test_script_module(lua_State* L, int index);

}  // namespace triage::lua
