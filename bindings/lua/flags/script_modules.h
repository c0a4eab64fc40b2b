#pragma once
#include <ATen/core/ivalue.h>

#include <lua.hpp>

#include <vector>

namespace torch::jit {
struct Module;
}

namespace triage::lua {

/// How a TorchScript module is found behind a Lua value: null where the value is none. Whoever gives scripts such
/// modules says so once, when the program starts; until then no value is one.
using ScriptModuleAt = const torch::jit::Module* (*)(lua_State* L, int index);
void set_script_module_at(ScriptModuleAt find);
const torch::jit::Module* test_script_module(lua_State* L, int index);

/// The arguments from stack index `first` on, as such a module takes them. Throws InputError for what it cannot take.
std::vector<c10::IValue> read_script_arguments(lua_State* L, int first);
/// Pushes what such a module gave, a tuple as several values; returns how many.
int push_script_results(lua_State* L, const c10::IValue& result);

}  // namespace triage::lua
