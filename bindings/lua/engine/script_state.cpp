#include "bindings/lua/engine/script_state.h"

#include "bindings/lua/compile/closure_state.h"
#include "bindings/lua/engine/policy_table.h"
#include "bindings/lua/engine/torch_files.h"
#include "bindings/lua/engine/triage_library.h"
#include "bindings/lua/semantics/chunk.h"
#include "bindings/lua/state/protected.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/host_memory.h"
#include "runtime/capture/recorder.h"
#include "runtime/operators/untrusted.h"
#include "runtime/random/sequence.h"

#include <algorithm>

namespace triage::lua {
namespace {

std::vector<at::Tensor> call_function(const HostFunction& function, const std::vector<at::Tensor>& arguments) {
  const random::DrawFrom of_host(nullptr);
  try {
    return function.fn(arguments);
  } catch (const std::exception&) {
    throw;
  } catch (
      ...) {  // no Lua error: nothing of Lua's runs in there but calls of policies, which keep theirs to themselves
    throw PolicyError("the function `" + function.name + "` of the host threw something that is not a std::exception");
  }
}

size_t holders(const at::Tensor& tensor) {
  return tensor.use_count() + (tensor.has_storage() ? tensor.storage().use_count() : 0);
}

/// What the host keeps of the arguments, and of what it returns, is memory of the host.
std::vector<at::Tensor> call_host_function(const HostFunction& function, const std::vector<at::Tensor>& arguments) {
  const operators::Untrusted trusted(nullptr);
  std::vector<size_t> before;
  for (const at::Tensor& argument : arguments) before.push_back(holders(argument));
  std::vector<at::Tensor> results = call_function(function, arguments);
  const auto is_argument = [&](const at::Tensor& result) {
    return std::any_of(arguments.begin(), arguments.end(),
                       [&](const at::Tensor& argument) { return argument.is_same(result); });
  };
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto returned = static_cast<size_t>(std::count_if(
        results.begin(), results.end(), [&](const at::Tensor& result) { return result.is_same(arguments[i]); }));
    if (holders(arguments[i]) - returned > before[i]) capture::ProtectInputs::add(arguments[i]);
  }
  for (const at::Tensor& result : results)
    if (result.defined() && holders(result) > 2 && !is_argument(result)) capture::ProtectInputs::add(result);
  return results;
}

/// A function of the host: tensors in, tensors out. One graph cannot hold it.
int call_host(lua_State* L) {
  const auto& function = *static_cast<const HostFunction*>(lua_touserdata(L, lua_upvalueindex(1)));
  std::vector<at::Tensor> arguments;
  for (int i = 1; i <= lua_gettop(L); ++i) arguments.push_back(check_tensor(L, i));
  capture::graph_break(capture::Break::host_function, "`" + function.name + "` is a function of the host",
                       "Call it before or after the policy.");
  if (auto* synthetic = capture::SyntheticInputs::current()) {
    synthetic->stop();
    throw Error("`" + function.name + "` is a function of the host, and triage does not call it with synthetic inputs");
  }
  const std::vector<at::Tensor> results = call_host_function(function, arguments);
  reserve(L, results.size(), "too many results");
  for (const at::Tensor& result : results) push_tensor(L, result);
  return static_cast<int>(results.size());
}

int free_host_function(lua_State* L) {
  static_cast<HostFunction*>(lua_touserdata(L, 1))->~HostFunction();
  lua_pushnil(L);
  lua_setmetatable(L, 1);
  return 0;
}

void push_host_function(lua_State* L, const HostFunction& function) {
  new (lua_newuserdatauv(L, sizeof(HostFunction), 0)) HostFunction(function);
  lua_newtable(L);
  lua_pushcfunction(L, guarded<free_host_function>);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  lua_pushcclosure(L, guarded<call_host>, 1);
}

}  // namespace

std::unique_ptr<State> make_script_state(StateOptions options, const std::vector<HostFunction>& host_functions) {
  auto state = std::make_unique<State>(std::move(options));
  in_protected_call(state->lua(), [&](lua_State* L) {
    push_policy(L);
    state->define("policy");
    push_triage(L);
    state->define("triage");
    if (!state->context().sandboxed) add_torch_files(L);
    for (const auto& function : host_functions) {
      push_host_function(L, function);
      state->define(function.name.c_str());
    }
    state->push_environment();
    mark_libraries(L);
  });
  return state;
}

void push_chunk(State& state, std::string_view source, const std::string& chunk_name) {
  lua_State* L = state.lua();
  state.push_environment();
  ChunkOptions options;
  options.env = lua_gettop(L);
  options.policy = state.context().sandboxed;
  if (load_chunk(L, source, chunk_name.c_str(), options) != LUA_OK) lua_error(L);
  lua_remove(L, -2);
}

}  // namespace triage::lua
