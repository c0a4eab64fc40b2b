// The replay of a compiled function from a capsule (runtime/policy/replay.h): in a fresh interpreter, the function
// alone.
#include "bindings/lua/compile/closures/closure_environments.h"
#include "bindings/lua/compile/compiled_function.h"
#include "bindings/lua/engine/script_state.h"
#include "bindings/lua/snapshot/snapshot.h"
#include "bindings/lua/state/protected.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/values/describe.h"
#include "runtime/capsule/results.h"
#include "runtime/files/disk.h"
#include "runtime/policy/replay.h"

#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

namespace triage::lua {
namespace {

using capsule::Json;
using capsule::member;

void set_field(lua_State* L, const char* name, const std::string& value) {
  lua_pushlstring(L, value.data(), value.size());
  lua_setfield(L, -2, name);
}

/// Options of triage.compile, on top of the stack.
void push_options(lua_State* L, const Json& facts, const ReplayOptions& options) {
  const Json& call = member(facts, "call");
  lua_newtable(L);
  set_field(L, "name", capsule::text(member(facts, "name"), "name"));
  set_field(L, "backend",
            options.backend.empty() ? capsule::text(member(call, "backend"), "backend") : options.backend);
  if (call.contains("masked_rows"))
    set_field(L, "masked_rows", capsule::text(member(call, "masked_rows"), "masked_rows"));
  for (const char* const name : {"fullgraph", "dynamic", "fail_on_backend_error"}) {
    lua_pushboolean(L, member(call, name).get<bool>());
    lua_setfield(L, -2, name);
  }
  lua_pushboolean(L, false);
  lua_setfield(L, -2, "warn");
}

/// The roots of the snapshot, as a list in the registry.
int restored(lua_State* L, const Json& snapshot, const capsule::RestoredTensors& tensors) {
  push_snapshot(L, snapshot, tensors);
  const int count = lua_gettop(L);
  if (count == 0) throw files::Malformed("it has no function");
  lua_createtable(L, count, 1);
  lua_insert(L, 1);
  for (int i = count; i >= 1; --i) lua_rawseti(L, 1, i);
  lua_pushinteger(L, count);
  lua_setfield(L, 1, "n");
  lua_settop(L, 1);
  return luaL_ref(L, LUA_REGISTRYINDEX);
}

void push_list(lua_State* L, int reference) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, reference);
  lua_getfield(L, 1, "n");
  const int count = static_cast<int>(lua_tointeger(L, -1));
  lua_settop(L, 1);
  reserve(L, static_cast<size_t>(count), "too many arguments");
  for (int i = 1; i <= count; ++i) lua_rawgeti(L, 1, i);
  lua_remove(L, 1);
}

/// Counts writes to the tensors from `first` to `last`.
uint32_t writes(lua_State* L, int first, int last) {
  uint32_t count = 0;
  for (int i = first; i <= last; ++i)
    if (const at::Tensor* const tensor = test_tensor(L, i); tensor && !tensor->is_inference())
      count += tensor->_version();
  return count;
}

/// Calls the compiled function at 1 with the arguments up to `last`; the results are behind them.
void call_once(lua_State* L, int last) {
  lua_settop(L, last);
  reserve(L, static_cast<size_t>(last) + 1, "too many arguments");
  lua_pushcfunction(L, guarded<call_compiled>);
  for (int i = 1; i <= last; ++i) lua_pushvalue(L, i);
  lua_call(L, last, LUA_MULTRET);
}

/// Calls the function at 1 with the arguments above it; the results are what is on the stack then. The call that
/// captures may be answered by the script; a function that is one graph, and writes to no argument, is called again, so
/// that its backend answers.
void call_again(lua_State* L, const Json& facts, const ReplayOptions& options,
                const std::function<void()>& begin_numbers) {
  const int last = lua_gettop(L);
  push_options(L, facts, options);
  lua_insert(L, 2);
  CompiledFunction& function = push_compiled(L);
  lua_replace(L, 1);
  lua_remove(L, 2);
  const uint32_t before = writes(L, 2, last);
  call_once(L, last);
  const CacheStatistics made = statistics_of(function);
  if (made.graphs > 0 && made.segments == 0 && writes(L, 2, last) == before) {
    begin_numbers();
    call_once(L, last);
  }
  for (int i = 1; i <= last; ++i) lua_remove(L, 1);
}

/// Results that are no tensors are told as recorded: by what they are.
std::string compare(lua_State* L, const Json& result, const capsule::RestoredTensors& tensors) {
  std::vector<at::Tensor> outputs;
  Json values = Json::object();
  for (int i = 1; i <= lua_gettop(L); ++i) {
    if (const at::Tensor* const tensor = test_tensor(L, i))
      outputs.push_back(*tensor);
    else
      values[fmt::format("result {}", i)] = lua_istable(L, i) ? std::string("table") : describe(L, i);
  }
  const std::string difference = capsule::difference(result, tensors, outputs);
  const bool left_out = result.value("values_left_out", false);
  if (!difference.empty() || left_out || result.value("values", Json::object()) == values) return difference;
  return fmt::format("results that are no tensors were {}, and are {} in the replay", result["values"].dump(),
                     values.dump());
}

std::string replay_function(const Json& facts, const capsule::RestoredTensors& tensors, const ReplayOptions& options) {
  StateOptions state_options;
  state_options.sandboxed = !options.trusted;
  if (options.trusted) state_options.limits = {0, 0, 0, 0};
  state_options.path = "capsule";
  state_options.print = options.print;
  const auto state = make_script_state(std::move(state_options));
  random::Sequence numbers;
  const auto begin_numbers = [&] { policy::set_numbers(numbers, facts, tensors); };
  begin_numbers();
  const random::DrawFrom draws(&numbers);
  const Json& result = member(facts, "result");
  std::string difference;
  Budget budget(*state);
  int values = LUA_NOREF;
  try {
    in_protected_call(state->lua(), [&](lua_State* L) { values = restored(L, member(facts, "script"), tensors); });
  } catch (const Error& error) {
    throw files::Malformed(error.what());
  }
  try {
    in_protected_call(state->lua(), [&](lua_State* L) {
      push_list(L, values);
      call_again(L, facts, options, begin_numbers);
      difference = compare(L, result, tensors);
    });
  } catch (const std::exception& error) {
    difference = capsule::difference(result, error);
  }
  return difference;
}

const bool registered = [] {
  policy::register_replay_of_functions(replay_function);
  return true;
}();

}  // namespace
}  // namespace triage::lua
