#include "bindings/lua/flags/script_modules.h"

#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/tensors/calls/convert.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/recording/branch_guard.h"

#include <triage/error.h>

#include <atomic>
#include <string>

namespace triage::lua {
namespace {

std::atomic<ScriptModuleAt> script_module_at{nullptr};

c10::IValue read_argument(lua_State* L, int index) {
  if (const at::Tensor* tensor = test_tensor(L, index)) {
    auto* branch = capture::BranchGuard::current();
    return branch ? branch->guarded(*tensor) : *tensor;
  }
  switch (lua_type(L, index)) {
    case LUA_TNIL:
      return {};
    case LUA_TBOOLEAN:
      return static_cast<bool>(lua_toboolean(L, index));
    case LUA_TNUMBER:
      return lua_isinteger(L, index) ? c10::IValue(static_cast<int64_t>(lua_tointeger(L, index)))
                                     : c10::IValue(static_cast<double>(lua_tonumber(L, index)));
    case LUA_TSTRING:
      return std::string(lua_tostring(L, index));
    case LUA_TTABLE: {
      c10::List<at::Tensor> tensors;
      for (lua_Integer i = 1; i <= static_cast<lua_Integer>(lua_rawlen(L, index)); ++i) {
        lua_rawgeti(L, index, i);
        tensors.push_back(check_tensor(L, -1));
        lua_pop(L, 1);
      }
      return tensors;
    }
    default:
      throw InputError("a TorchScript module takes tensors, lists of them, numbers, booleans, strings and nil; got " +
                       describe(L, index));
  }
}

void push_script_value(lua_State* L, const c10::IValue& value) {
  reserve(L, 0, "results nested too deep");
  if (value.isTuple()) {
    lua_newtable(L);
    lua_Integer position = 0;
    for (const c10::IValue& item : value.toTupleRef().elements()) {
      push_script_value(L, item);
      lua_rawseti(L, -2, ++position);
    }
  } else if (value.isGenericDict()) {
    lua_newtable(L);
    for (const auto& entry : value.toGenericDict()) {
      push_script_value(L, entry.key());
      push_script_value(L, entry.value());
      lua_rawset(L, -3);
    }
  } else {
    push_ivalue(L, value);
  }
}

}  // namespace

void set_script_module_at(ScriptModuleAt find) { script_module_at = find; }

const torch::jit::Module* test_script_module(lua_State* L, int index) {
  const ScriptModuleAt find = script_module_at;
  return find ? find(L, index) : nullptr;
}

std::vector<c10::IValue> read_script_arguments(lua_State* L, int first) {
  std::vector<c10::IValue> arguments;
  for (int i = first; i <= lua_gettop(L); ++i) arguments.push_back(read_argument(L, i));
  return arguments;
}

int push_script_results(lua_State* L, const c10::IValue& result) {
  if (!result.isTuple()) {
    push_script_value(L, result);
    return 1;
  }
  const auto& items = result.toTupleRef().elements();
  reserve(L, items.size(), "too many results");
  for (const c10::IValue& item : items) push_script_value(L, item);
  return static_cast<int>(items.size());
}

}  // namespace triage::lua
