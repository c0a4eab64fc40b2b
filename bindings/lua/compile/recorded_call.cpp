#include "bindings/lua/compile/recorded_call.h"

#include "bindings/lua/snapshot/snapshot.h"
#include "bindings/lua/state/effects.h"
#include "bindings/lua/state/protected.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/guarded.h"
#include "runtime/messages/logs/log.h"
#include "runtime/policy/replay.h"
#include "runtime/random/sequence.h"

#include <fmt/format.h>
#include <triage/capsule.h>
#include <triage/files.h>

#include <optional>
#include <string>
#include <utility>

namespace triage::lua {
namespace {

using capsule::CapsuleRecording;
using capsule::Json;

const char* const operation = "triage.record";

/// The call on the stack, as what a recording asks.
class CallOnStack final : public capsule::SavesState {
 public:
  CallOnStack(lua_State* L, int function, int last) : L_(L), function_(function), last_(last) {}
  Json save_state(capsule::SavedTensors& tensors, const std::vector<std::string>& masked) override {
    return snapshot_of_call(L_, function_, 2, last_, tensors, masked);
  }

 private:
  lua_State* L_;
  int function_, last_;
};

/// Arguments that the script may change: what they were is known before the call only.
bool has_tables(lua_State* L, int last) {
  for (int i = 2; i <= last; ++i)
    if (lua_istable(L, i) || lua_isfunction(L, i) || is_guarded(L, i)) return true;
  return false;
}

Json facts_of(const CompiledFunction& function, CapsuleRecording& recording, CallOnStack& call) {
  recording.before_script(call);
  Json facts = recording.facts();
  facts["kind"] = "function";
  facts["name"] = function.name;
  facts["call"] = {{"backend", function.options.backend},
                   {"fullgraph", function.options.fullgraph},
                   {"masked_rows", masked_rows_name(function.options.masked_rows)},
                   {"dynamic", function.options.dynamic},
                   {"fail_on_backend_error", function.options.fail_on_backend_error},
                   {"trusted", true}};
  return facts;
}

void keep(CapsuleRecording& recording, const std::string& name, Json facts) {
  if (CapsuleRecording::CapsuleRequest* const whole = recording.whole())
    whole->done = std::move(facts);
  else
    capsule::write_failure(name, std::move(facts), recording.tensors());
}

/// The error value on top of the stack, as C++.
Json error_on_stack(lua_State* L) {
  try {
    rethrow(L, -1);
  } catch (const std::exception& error) {
    return {{"error", capsule::error_facts(error)}};
  }
}

}  // namespace

capsule::Json snapshot_of_call(lua_State* L, int function, int first, int last, capsule::SavedTensors& tensors,
                               const std::vector<std::string>& masked) {
  const int top = lua_gettop(L);
  const auto count = static_cast<size_t>(last - first + 1);
  reserve(L, count + 1, "too many arguments");
  lua_rawgeti(L, LUA_REGISTRYINDEX, function);
  std::vector<std::string> names = parameter_names(L, top + 1, count);
  names.insert(names.begin(), "the function");
  for (int i = first; i <= last; ++i) lua_pushvalue(L, i);
  Json state = snapshot(L, top + 1, lua_gettop(L), {tensors, masked, names, compiled_function_of});
  lua_settop(L, top);
  return state;
}

Json results_of(lua_State* L, int first, capsule::SavedTensors& tensors, const CapsuleRecording* recording) {
  Json outputs = Json::array(), values = Json::object();
  const bool derived = recording && recording->leaves_out();
  for (int i = first; i <= lua_gettop(L); ++i) {
    const std::string name = fmt::format("result {}", i - first + 1);
    if (const at::Tensor* const tensor = test_tensor(L, i)) {
      const bool masked = derived || (recording && recording->is_masked(name));
      outputs.push_back({{"name", name}, {"tensor", tensors.add(*tensor, masked)}});
      if (masked) outputs.back()["masked"] = true;
    } else if (!derived) {
      values[name] = lua_istable(L, i) ? std::string("table") : describe(L, i);
    }
  }
  Json results = {{"outputs", std::move(outputs)}, {"values", std::move(values)}};
  if (derived) results["values_left_out"] = true;
  return results;
}

bool is_recorded(lua_State* L) {
  return capsule::wanted() && !is_policy(L) && (!CapsuleRecording::current() || CapsuleRecording::asked_for());
}

int call_recorded(lua_State* L, const CompiledFunction& function, lua_CFunction call) {
  const int last = lua_gettop(L);
  std::optional<CapsuleRecording> own;
  CapsuleRecording& recording =
      CapsuleRecording::asked_for()
          ? *CapsuleRecording::asked_for()
          : own.emplace(random::copy_of_current(), /*later=*/true);  // a copy stays where it is
  if (recording.whole()) recording.set_generator(random::copy_of_current(), /*later=*/true);
  CallOnStack on_stack(L, function.function, last);
  if (has_tables(L, last)) recording.before_script(on_stack);
  reserve(L, static_cast<size_t>(last) + 2, "too many arguments");
  lua_pushcfunction(L, keep_traceback);
  lua_pushcfunction(L, call);
  for (int i = 1; i <= last; ++i) lua_pushvalue(L, i);
  const int status = lua_pcall(L, last, LUA_MULTRET, last + 1);
  lua_remove(L, last + 1);
  if (status != LUA_OK) {
    Json result = error_on_stack(L);
    try {
      Json facts = facts_of(function, recording, on_stack);
      facts["result"] = std::move(result);
      keep(recording, function.name, std::move(facts));
    } catch (const std::exception& failure) {
      messages::warn(
          fmt::format("a call of '{}' failed, and no capsule can be made of it: {}", function.name, failure.what()));
    }
    own.reset();
    return -1;  // the error value is on top of the stack
  }
  if (recording.whole()) {
    Json facts = facts_of(function, recording, on_stack);
    facts["result"] = results_of(L, last + 1, recording.tensors(), &recording);
    keep(recording, function.name, std::move(facts));
  }
  return lua_gettop(L) - last;
}

namespace {

RecordOptions options_at(lua_State* L, int index) {
  RecordOptions options;
  for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
    const std::string key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : describe(L, -2);
    if (key == "file" && lua_type(L, -1) == LUA_TSTRING) {
      options.file = lua_tostring(L, -1);
    } else if (key == "masked" && lua_istable(L, -1)) {
      const int list = lua_gettop(L);
      for (lua_Integer i = 1; lua_rawgeti(L, list, i) == LUA_TSTRING; ++i) {
        options.masked.emplace_back(lua_tostring(L, -1));
        lua_pop(L, 1);
      }
      lua_settop(L, list);
    } else {
      throw InputError(
          fmt::format("{}: option `{}` is unknown or has the wrong type; there are file (a string) and masked (a "
                      "list of names)",
                      operation, key));
    }
  }
  if (options.file.empty())
    throw InputError(fmt::format("{}: expected {{file = \"NAME.pt\"}} as options: where the capsule goes", operation));
  on_behalf_of(operation, [&] { check_ending(options.file); });
  return options;
}

}  // namespace

int record(lua_State* L) {
  check_callable(L, 1, operation);
  table_argument(L, {2, operation, "inputs"});
  table_argument(L, {3, operation, "options"});
  refuse_in_selection(L, "`triage.record`");
  const RecordOptions options = options_at(L, 3);
  const auto count = static_cast<int>(lua_rawlen(L, 2));
  if (!test_compiled(L, 1)) {
    lua_pushnil(L);
    lua_insert(L, 2);  // options of triage.compile; now `inputs` is at 3
    push_compiled(L);
    lua_replace(L, 1);
    lua_remove(L, 2);
  }
  lua_settop(L, 2);
  CapsuleRecording::CapsuleRequest whole{false, options.masked};
  CapsuleRecording recording(whole);
  reserve(L, static_cast<size_t>(count) + 2, "too many inputs");
  lua_pushcfunction(L, guarded<call_compiled>);
  lua_pushvalue(L, 1);
  for (int i = 1; i <= count; ++i) lua_rawgeti(L, 2, i);
  const int status = lua_pcall(L, count + 1, LUA_MULTRET, 0);
  policy::save_recorded(options, whole, recording.tensors());
  if (status != LUA_OK) return -1;
  return lua_gettop(L) - 2;
}

}  // namespace triage::lua
