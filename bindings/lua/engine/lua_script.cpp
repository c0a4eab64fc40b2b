#include "bindings/lua/engine/lua_script.h"

#include "bindings/lua/engine/library_check.h"
#include "bindings/lua/engine/protected.h"
#include "bindings/lua/engine/script_state.h"
#include "bindings/lua/flags/flags_library.h"
#include "runtime/capture/recorder.h"
#include "runtime/compat/autocast.h"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <filesystem>

namespace triage::lua {
namespace {

using capture::FlagsTracker;
using capture::Recorder;
using Deadline = std::optional<std::chrono::steady_clock::time_point>;

/// The table `p` of a policy's params: tensors while capturing, so that changing one needs no new graph; else plain values.
void push_params(lua_State* L, const std::vector<Param>& params, at::ArrayRef<at::Tensor> values) {
  lua_createtable(L, 0, static_cast<int>(params.size()));
  const bool traced = Recorder::current() != nullptr;
  for (size_t i = 0; i < params.size(); ++i) {
    const at::Tensor& value = values[i];
    if (traced)
      push_tensor(L, value);
    else if (value.scalar_type() == at::kBool)
      lua_pushboolean(L, value.item().toBool());
    else if (at::isIntegralType(value.scalar_type(), false))
      lua_pushinteger(L, value.item().toLong());
    else
      lua_pushnumber(L, value.item().toDouble());
    lua_setfield(L, -2, params[i].name.c_str());
  }
}

std::string described(lua_State* L, int index) {
  return lua_isnil(L, index) ? "nil" : std::string("a ") + luaL_typename(L, index);
}

std::vector<at::Tensor> read_results(lua_State* L, int first, const PolicyDefinition& policy) {
  std::vector<at::Tensor> results;
  int count = lua_gettop(L) - first + 1;
  const auto& names = policy.signature.outputs;
  if (!names.empty() && static_cast<size_t>(count) != names.size())
    throw PolicyError("policy '" + policy.name + "' names " + std::to_string(names.size()) + " outputs and returned " +
                      std::to_string(count) + (count == 1 ? " value" : " values"));
  for (int i = 0; i < count; ++i) {
    const at::Tensor* tensor = test_tensor(L, first + i);
    if (!tensor)
      throw PolicyError("policy '" + policy.name + "' returned " + described(L, first + i) + " as result " +
                        std::to_string(i + 1) + "; a policy returns tensors");
    results.push_back(*tensor);
  }
  return results;
}

}  // namespace

LuaScript::LuaScript(std::string_view source, const ScriptOptions& options) {
  check_lua_library();
  StateOptions state_options;
  state_options.sandboxed = true;
  state_options.limits = options.limits;
  state_options.path = options.path;
  state_options.print = options.print;
  state_ = make_script_state(std::move(state_options), options.host_functions);
  Budget budget(*state_);
  try {
    in_protected_call(state_->lua(), [&](lua_State* L) {
      push_chunk(*state_, source, "@" + options.path);
      lua_call(L, 0, 1);
      policy_ = read_policy(L, options.path);
    });
  } catch (const LimitError&) {
    throw;
  } catch (const Error& error) {
    throw LoadError(error.what(), error.source(), error.traceback());
  }
}

LuaScript::~LuaScript() = default;

std::vector<at::Tensor> LuaScript::call(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> params,
                                        Deadline deadline) {
  lua_State* L = state_->lua();
  Budget budget(*state_, deadline);
  c10::AutoGradMode restore_grad_mode(c10::GradMode::is_enabled());  // whatever the script leaves behind
  const compat::RestoreAutocast restore_autocast;
  FlagsTracker tracker;
  if (Recorder* recorder = Recorder::current()) recorder->set_where([L] { return current_line(L); });
  std::vector<at::Tensor> results;
  in_protected_call(L, [&](lua_State* L) {
    luaL_checkstack(L, static_cast<int>(inputs.size()) + 8, "too many inputs");
    lua_rawgeti(L, LUA_REGISTRYINDEX, policy_.run);
    for (const auto& input : inputs) push_tensor(L, input);
    push_params(L, policy_.signature.params, params);
    lua_call(L, static_cast<int>(inputs.size()) + 1, LUA_MULTRET);
    results = read_results(L, 1, policy_);
    check_finished_chains(L);
  });
  if (state_->context().expired)
    throw LimitError("policy '" + policy_.name + "' ran out of its budget, and went on with pcall");
  flags_outputs_.clear();
  for (const auto& result : results) flags_outputs_.push_back(tracker.is_flags(result));
  return results;
}

std::vector<std::pair<std::string, std::string>> LuaScript::run_tests() {
  std::vector<std::pair<std::string, std::string>> report;
  if (policy_.tests == LUA_NOREF) return report;
  lua_State* L = state_->lua();
  lua_Integer count = 0;
  in_protected_call(L, [&](lua_State* L) {
    lua_rawgeti(L, LUA_REGISTRYINDEX, policy_.tests);
    count = static_cast<lua_Integer>(lua_rawlen(L, -1));
  });
  for (lua_Integer i = 1; i <= count; ++i) {
    std::string name = "test " + std::to_string(i), failure;
    Budget budget(*state_);
    try {
      in_protected_call(L, [&](lua_State* L) {  // check(run(args()))
        lua_rawgeti(L, LUA_REGISTRYINDEX, policy_.tests);
        lua_rawgeti(L, 1, i);
        if (lua_getfield(L, 2, "name") == LUA_TSTRING) name = lua_tostring(L, -1);
        lua_pop(L, 1);
        lua_getfield(L, 2, "check");
        lua_rawgeti(L, LUA_REGISTRYINDEX, policy_.run);
        int run = lua_gettop(L);
        lua_getfield(L, 2, "args");
        lua_call(L, 0, LUA_MULTRET);
        int given = lua_gettop(L) - run;
        int wanted = static_cast<int>(policy_.signature.inputs.size());
        if (given != wanted)
          throw PolicyError("`args` returned " + std::to_string(given) + " values, the policy takes " +
                            std::to_string(wanted) + " inputs");
        std::vector<at::Tensor> defaults;
        for (const auto& param : policy_.signature.params)
          defaults.push_back(at::scalar_to_tensor(param.value.toScalar()));
        push_params(L, policy_.signature.params, defaults);
        lua_call(L, given + 1, LUA_MULTRET);
        lua_call(L, lua_gettop(L) - run + 1, 1);
        const at::Tensor* verdict = test_tensor(L, -1);
        bool passed = verdict ? verdict->numel() == 1 && verdict->item().toBool()
                              : !(lua_isboolean(L, -1) && !lua_toboolean(L, -1));
        if (!passed) failure = "check returned false";
      });
    } catch (const std::exception& error) {
      failure = error.what();
    }
    report.emplace_back(std::move(name), std::move(failure));
  }
  return report;
}

namespace {

const bool registered = [] {
  register_front_end(".lua", [](std::string_view source, const ScriptOptions& options) -> std::unique_ptr<Script> {
    return std::make_unique<LuaScript>(source, options);
  });
  return true;
}();

}  // namespace

}  // namespace triage::lua
