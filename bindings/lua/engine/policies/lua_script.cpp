#include "bindings/lua/engine/policies/lua_script.h"

#include "bindings/lua/capture/open_chains.h"
#include "bindings/lua/capture/user_code.h"
#include "bindings/lua/compile/compiled_function.h"
#include "bindings/lua/engine/libraries/library_check.h"
#include "bindings/lua/engine/libraries/unknown_names.h"
#include "bindings/lua/engine/policies/policy_codes.h"
#include "bindings/lua/engine/policies/policy_fixtures.h"
#include "bindings/lua/engine/policies/policy_modules.h"
#include "bindings/lua/engine/policies/policy_params.h"
#include "bindings/lua/engine/policies/policy_ranges.h"
#include "bindings/lua/engine/policies/policy_results.h"
#include "bindings/lua/engine/policies/policy_state.h"
#include "bindings/lua/engine/script_state.h"
#include "bindings/lua/flags/positions.h"
#include "bindings/lua/rewriter/findings/global_names.h"
#include "bindings/lua/snapshot/snapshot.h"
#include "bindings/lua/state/modes.h"
#include "bindings/lua/state/protected.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/table_fields.h"
#include "bindings/lua/tensors/calls/call.h"
#include "bindings/lua/values/read_only.h"
#include "bindings/lua/values/tensor.h"
#include "bindings/lua/values/tensor_list.h"
#include "runtime/backends/deadline.h"
#include "runtime/backends/output_aliases.h"
#include "runtime/capture/compiled.h"
#include "runtime/capture/recording/branch_guard.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/replay/trace_replayer.h"
#include "runtime/files/disk.h"
#include "runtime/flags/forms.h"
#include "runtime/graph/output_names.h"
#include "runtime/location/owner.h"
#include "runtime/memory/overlap.h"
#include "runtime/messages/printable.h"
#include "runtime/operators/logical_bytes.h"
#include "runtime/policy/attribution/flagged.h"
#include "runtime/policy/ranges/violations.h"
#include "runtime/policy/state/state_of_call.h"
#include "runtime/policy/versions/version.h"
#include "runtime/typing/first_state.h"

#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <triage/flags.h>

#include <filesystem>

namespace triage::lua {
namespace {

using capture::FlagsTracker;
using capture::Recorder;

/// The table `p` of a policy's params: tensors, 0-dim ones for numbers, whether or not the call is recorded, so that
/// the script sees the same on every call and a graph need not be made again when one changes.
void push_params(lua_State* L, const std::vector<triage::Param>& params, at::ArrayRef<at::Tensor> values) {
  lua_createtable(L, 0, static_cast<int>(params.size()));
  for (size_t i = 0; i < params.size(); ++i) {
    push_tensor(L, values[i]);
    lua_setfield(L, -2, params[i].name.c_str());
  }
  refuse_unknown_fields(L, "there is no param");
}

/// What `run` gets behind the inputs: run(z), run(z, p), run(z, s), run(z, p, s). `p` is there without params, too,
/// unless there is state.
void push_values(lua_State* L, const Signature& signature, at::ArrayRef<at::Tensor> values) {
  const size_t num_params = signature.params.size();
  if (num_params > 0 || signature.state.empty()) push_params(L, signature.params, values.slice(0, num_params));
  if (!signature.state.empty()) push_state(L, signature.state, values.slice(num_params));
}

/// The host may write to what it is given: what the script keeps (an upvalue, a global) must not be that. `wrote`: it
/// may have stored what it made in this call.
void separate_from_state(const FlagsTracker& tracker, bool wrote, at::ArrayRef<at::Tensor> inputs,
                         std::vector<at::Tensor>& results) {
  copy_lent(results, [&](const at::Tensor& result) {
    return (wrote || !tracker.made(result)) && !shares_memory(result, inputs);
  });
}

/// Nor a param, which is the same tensor in every call. In the graph, too.
void separate_from_params(lua_State* L, at::ArrayRef<at::Tensor> params, std::vector<at::Tensor>& results) {
  if (!params.empty()) capture::end_segment();  // a view that comes later shows only then what it is a view of
  for (at::Tensor& result : results)
    if (shares_memory(result, params)) result = run_for_tensor(L, "aten::clone", "", {result, c10::IValue()});
}

/// A captured script may not run again for long, and what it let go would stay: megabytes behind a few pointers.
/// `before`: bytes of its tensors before the call. Of many small calls each leaves little, and a collection takes
/// longer than such a capture. With gradients it leaves nodes of autograd, too, which tell a tensor of the host what
/// sizes its gradient has, also if it has others now.
void collect_after_capture(lua_State* L, int64_t before, at::ArrayRef<at::Tensor> results) {
  constexpr int64_t of_one_call = 1 << 16, in_all = 1 << 20;
  const int64_t now = context(L).tensor_bytes - context(L).held_bytes;
  const bool has_gradients =
      std::any_of(results.begin(), results.end(), [](const at::Tensor& result) { return result.requires_grad(); });
  if (now - before > of_one_call || now > in_all || has_gradients) lua_gc(L, LUA_GCCOLLECT);
}

/// Pushes a field of a test; returns its type. No metamethod runs: not every caller has a budget. The script may have
/// changed its tests since they were read.
int push_test_field(lua_State* L, const PolicyDefinition& policy, size_t index, const char* field) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, policy.tests);
  if (lua_rawgeti(L, -1, static_cast<lua_Integer>(index) + 1) == LUA_TTABLE)
    push_own_field(L, -1, field);
  else
    lua_pushnil(L);
  lua_replace(L, -3);
  lua_pop(L, 1);
  return lua_type(L, -1);
}

constexpr const char* check_is_false = "check returned false";

/// How what `check` returned at `index` fails the test; empty: it passes.
std::string verdict(lua_State* L, int index) {
  if (lua_isboolean(L, index)) return lua_toboolean(L, index) ? "" : check_is_false;
  const at::Tensor* tensor = test_tensor(L, index);
  if (!tensor) return "check returned " + described(L, index) + "; it must return true or false, or raise an error";
  if (tensor->numel() != 1)
    return "check returned a tensor of " + std::to_string(tensor->numel()) + " elements; end it with :all()";
  return tensor->item().toBool() ? "" : check_is_false;
}

/// An expanded tensor has as many elements as it says, for all that read or copy it.
void check_argument_sizes(at::ArrayRef<at::Tensor> arguments, const Limits& limits) {
  const double bytes = operators::logical_bytes(arguments);
  if (!limits.tensor_bytes || bytes <= static_cast<double>(limits.tensor_bytes)) return;
  throw PolicyError(
      fmt::format("`args` returned tensors of {:.0f} MiB (an expanded tensor counts in full); the budget of tensor "
                  "memory is {} MiB; return smaller tensors",
                  bytes / (1 << 20), limits.tensor_bytes >> 20));
}

/// The outputs that `check` was not content with, a line each: flags in words, of data the first rows.
std::string shown(lua_State* L, const Signature& signature, at::ArrayRef<at::Tensor> outputs,
                  const std::vector<bool>& flags) {
  constexpr int64_t rows_of_data = 4, rows_of_flags = 1000;
  std::string text;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const at::Tensor& output = outputs[i];
    const size_t count = outputs.size() - signature.state.size();
    const std::string name =
        i >= count ? "s." + signature.state[i - count].name : graph::output_name(signature.outputs, i);
    const bool is_flags = i < flags.size() && flags[i];
    const int64_t rows = is_flags ? rows_of_flags : rows_of_data;
    const bool long_one = output.dim() > 0 && output.size(0) > rows;
    const at::Tensor part = long_one ? output.detach().narrow(0, 0, rows) : output.detach();
    text += "\n" + name + " = ";
    if (is_flags) {
      text += flags::repr(part, {.codes = signature.codes});
    } else {
      push_tensor(L, part);
      text += luaL_tolstring(L, -1, nullptr);
      lua_pop(L, 2);
    }
    if (long_one) text += " (the first " + std::to_string(rows) + " of " + std::to_string(output.size(0)) + " rows)";
  }
  return text;
}

/// Inputs that are declared as flags are some to every question of the script, whatever configuration the host made
/// them with.
void note_declared_flags(const Signature& signature, at::ArrayRef<at::Tensor> inputs) {
  for (size_t i = 0; i < inputs.size() && i < signature.input_types.size(); ++i)
    if (signature.input_types[i] && signature.input_types[i]->flags && inputs[i].dim() == 2)
      flags::KnownForms::add(inputs[i].scalar_type(), inputs[i].size(1));
}

}  // namespace

LuaScript::LuaScript(std::string_view source, const ScriptOptions& options,
                     const std::function<void(ScriptState&)>& prepare) {
  check_lua_library();
  const c10::InferenceMode outside(false);  // what the script makes now must serve calls with gradients too
  StateOptions state_options;
  state_options.sandboxed = true;
  state_options.trusted = options.trusted;
  state_options.limits = options.limits;
  state_options.path = options.path;
  state_options.print = options.print;
  state_ = make_script_state(std::move(state_options), options.host_functions, options.host_tensors);
  for (const HostTensor& given : options.host_tensors) given_.add(given.tensor, given.name);
  has_given_ = !options.host_tensors.empty();
  if (prepare) prepare(*state_);
  Budget budget(*state_);
  const KeepModes modes;
  const auto protect = protect_given();
  try {
    const FilesOfLoad files(*state_, options);
    in_protected_call(state_->lua(), [&](lua_State* L) {
      push_chunk(*state_, source, "@" + options.path);
      expect_codes(L, rewriter::declared_codes(source, "@" + options.path, {true, [&](size_t) { charge(L, 0); }}));
      const bool names_checked = refuse_unknown_globals(*state_, source, options.path);
      lua_call(L, 0, 1);
      if (!names_checked) refuse_unknown_globals(*state_, source, options.path, /*has_run=*/true);
      for (const auto& [shown, text] : files.modules) refuse_unknown_globals(*state_, *text, shown, /*has_run=*/true);
      policy_ = read_policy(L, options.path);
      context(L).accumulation = policy_.accumulation;
      keep_positions(L, policy_.signature.positions);
      if (policy_.tests == LUA_NOREF) return;
      policy_.fixtures = load_fixtures(L, policy_, files);
      lua_rawgeti(L, LUA_REGISTRYINDEX, policy_.tests);
      test_count_ = lua_rawlen(L, -1);
    });
  } catch (const LimitError&) {
    throw;
  } catch (const Error& error) {
    throw LoadError(error.what(), error.source(), error.traceback());
  }
}

LuaScript::~LuaScript() = default;

void LuaScript::keep_locations() noexcept { state_->context().locations->keep(); }

/// Where nobody else does: at load, and in tests.
std::optional<capture::ProtectInputs> LuaScript::protect_given() {
  if (!has_given_ || capture::ProtectInputs::active()) return std::nullopt;
  return std::optional<capture::ProtectInputs>(std::in_place, at::ArrayRef<at::Tensor>(), &given_);
}

std::vector<at::Tensor> LuaScript::call(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> params,
                                        std::optional<Deadline::Moment> deadline) {
  lua_State* L = state_->lua();
  Budget budget(*state_, deadline);
  const KeepModes modes;
  FlagsTracker tracker;
  const auto protect = protect_given();
  const capture::ScriptScope script(user_code(L));
  const capture::OnGraphBreak restore_breaks(capture::OnGraphBreak::current());
  std::vector<at::Tensor> results;
  const int64_t bytes_before = context(L).tensor_bytes;
  const uint64_t writes_before = writes();
  if (auto* recording = capsule::CapsuleRecording::current()) recording->before_script(*this);
  if (Recorder::current()) capture::OutsideBranches::allow_restart(0);
  in_protected_call(L, [&](lua_State* L) {
    note_declared_flags(policy_.signature, inputs);
    begin_positions(L);
    reserve(L, inputs.size(), "too many inputs");
    lua_rawgeti(L, LUA_REGISTRYINDEX, policy_.run);
    push_tensors(L, inputs);
    push_values(L, policy_.signature, params);
    call_for_all(L, lua_gettop(L) - 1);
    results = read_results(L, 1, policy_);
    separate_from_params(L, params.slice(0, policy_.signature.params.size()), results);
    append_masks(L, policy_.signature, results);
    append_positions(L, results);
    check_finished_chains(L);
  });
  capture::end_segment();
  if (state_->context().expired)
    throw LimitError("policy '" + policy_.name + "' ran out of its budget, and caught the error with pcall");
  check_state(inputs, results);
  flags_outputs_.clear();
  for (size_t i = 0; i + capture::behind_outputs(policy_.signature) < results.size(); ++i)
    flags_outputs_.push_back(tracker.is_flags(results[i]));
  if (Recorder::current())
    collect_after_capture(L, bytes_before, results);
  else
    separate_from_state(tracker, writes() != writes_before, inputs, results);
  return results;
}

/// Behind the outputs.
void LuaScript::check_state(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> results) const {
  const size_t count = policy_.signature.state.size();
  if (count == 0) return;
  const size_t first = results.size() - capture::behind_outputs(policy_.signature);
  const auto failure = policy::state_failure(policy_.signature, inputs, results.slice(first, count));
  if (!failure) return;
  const Source where = definition().where;
  throw PolicyError(fmt::format("{}:{}: {}", where.file, where.line, *failure), where);
}

capsule::Json LuaScript::save_state(capsule::SavedTensors& tensors, const std::vector<std::string>& masked) {
  capsule::Json state;
  in_protected_call(state_->lua(), [&](lua_State* L) {
    lua_rawgeti(L, LUA_REGISTRYINDEX, policy_.run);
    state = snapshot(L, 1, 1, {tensors, masked, {"the function"}, compiled_function_of});
  });
  return state;
}

void LuaScript::restore_state(const capsule::Json& state, const capsule::RestoredTensors& tensors) {
  Budget budget(*state_);
  in_protected_call(state_->lua(), [&](lua_State* L) {
    push_snapshot(L, state, tensors);
    if (!lua_isfunction(L, 1)) throw files::Malformed("its script has no function");
    lua_settop(L, 1);
    lua_rawseti(L, LUA_REGISTRYINDEX, policy_.run);
  });
}

Source LuaScript::current_line() const { return lua::current_line(state_->lua()); }

void LuaScript::watch_lines(std::function<void(lua_State*, lua_Debug*)> watch) {
  state_->context().on_line = std::move(watch);
}

uint64_t LuaScript::writes() const { return state_->context().epoch; }

LuaScript::Definition LuaScript::definition() const {
  lua_State* L = state_->lua();
  lua_rawgeti(L, LUA_REGISTRYINDEX, policy_.run);
  Definition definition = definition_of(L, -1);
  lua_pop(L, 1);
  return definition;
}

std::string LuaScript::test_name(size_t index) {
  std::string name = "test " + std::to_string(index + 1);
  in_protected_call(state_->lua(), [&](lua_State* L) {
    constexpr size_t longest = 255;
    if (push_test_field(L, policy_, index, "name") == LUA_TSTRING)
      name = messages::one_line(std::string_view(lua_tostring(L, -1)).substr(0, longest));
  });
  return name;
}

int LuaScript::test_line(size_t index) {
  lua_Debug info{};
  in_protected_call(state_->lua(), [&](lua_State* L) {
    if (push_test_field(L, policy_, index, "check") == LUA_TFUNCTION) lua_getinfo(L, ">S", &info);
  });
  return info.linedefined;
}

std::vector<at::Tensor> LuaScript::test_arguments(size_t index) {
  std::vector<at::Tensor> arguments;
  Budget budget(*state_, tests_end_);
  const KeepModes modes;
  const auto protect = protect_given();
  in_protected_call(state_->lua(), [&](lua_State* L) {
    if (push_test_field(L, policy_, index, "args") == LUA_TTABLE) {
      arguments = fixture_inputs(L, policy_);
      return check_argument_sizes(arguments, context(L).limits);
    }
    int first = lua_gettop(L);
    call_for_all(L, 0);
    size_t given = static_cast<size_t>(lua_gettop(L) - first + 1), wanted = policy_.signature.inputs.size();
    if (given != wanted)
      throw PolicyError("`args` returned " + std::to_string(given) + " values, the policy takes " +
                        std::to_string(wanted) + " inputs");
    for (int i = first; i <= lua_gettop(L); ++i) {
      const at::Tensor* tensor = test_tensor(L, i);
      if (!tensor)
        throw PolicyError("`args` returned " + described(L, i) + " as value " + std::to_string(i - first + 1) +
                          "; the inputs of a policy are tensors");
      arguments.push_back(*tensor);
    }
    check_argument_sizes(arguments, context(L).limits);
  });
  return arguments;
}

std::vector<at::Tensor> LuaScript::test_params(size_t index) {
  Params values;
  in_protected_call(state_->lua(), [&](lua_State* L) {
    if (push_test_field(L, policy_, index, "params") != LUA_TTABLE) return;
    const int table = lua_gettop(L);
    for (const triage::Param& param : policy_.signature.params) {
      push_own_field(L, table, param.name.c_str());
      if (const auto value = read_param_value(L)) values.emplace_back(param.name, *value);
      lua_pop(L, 1);
    }
  });
  return policy::param_tensors(policy_.signature, values);
}

std::vector<at::Tensor> LuaScript::test_values(size_t index, at::ArrayRef<at::Tensor> inputs) {
  std::vector<at::Tensor> values = test_params(index);
  if (policy_.signature.state.empty()) return values;
  in_protected_call(state_->lua(), [&](lua_State* L) {
    if (push_test_field(L, policy_, index, "state") != LUA_TTABLE) lua_newtable(L);
    for (at::Tensor& value : read_test_state(L, policy_.signature.state, rows_of(inputs)))
      values.push_back(inputs.empty() ? std::move(value) : value.to(inputs[0].device()));
  });
  return values;
}

std::string LuaScript::check_test(size_t index, at::ArrayRef<at::Tensor> outputs) {
  std::string failure;
  Budget budget(*state_, tests_end_);
  const KeepModes modes;
  const auto protect = protect_given();
  in_protected_call(state_->lua(), [&](lua_State* L) {
    const size_t count = outputs.size() - capture::behind_outputs(policy_.signature);
    const at::ArrayRef<at::Tensor> state = outputs.slice(count, policy_.signature.state.size());
    const bool has_expectation = push_test_field(L, policy_, index, "expect") == LUA_TTABLE;
    if (has_expectation) failure = unexpected(L, policy_, outputs.slice(0, count), flags_outputs_);
    lua_pop(L, 1);
    if (!failure.empty()) return;
    if (push_test_field(L, policy_, index, "check") == LUA_TNIL && has_expectation) return;
    int first = lua_gettop(L);
    reserve(L, outputs.size(), "too many outputs");
    for (const auto& output : outputs.slice(0, count)) push_tensor(L, output);
    if (!state.empty()) push_state(L, policy_.signature.state, state);
    call_for_all(L, lua_gettop(L) - first);
    if (lua_gettop(L) >= first) failure = verdict(L, first);  // without a result it passed: it may use assert
    const at::ArrayRef<at::Tensor> answer = outputs.slice(0, count + state.size());
    if (failure == check_is_false) failure += shown(L, policy_.signature, answer, flags_outputs_);
  });
  std::vector<at::Tensor> masks = outputs.vec();
  if (const auto violations = policy::take_violations(policy_.signature, masks); failure.empty() && violations)
    failure = "its declared ranges do not hold: " + violations->text(policy_.signature);
  return failure;
}

std::vector<std::pair<std::string, std::string>> LuaScript::run_tests() {
  // Together they have the time of one load.
  const auto end = Deadline::in(state_->context().limits.seconds);
  tests_end_ = end;
  std::vector<std::pair<std::string, std::string>> report;
  for (size_t i = 0; i < test_count_; ++i) {
    std::string failure;
    try {
      const std::vector<at::Tensor> arguments = test_arguments(i);
      failure = check_test(i, call(arguments, test_values(i, arguments), end));
    } catch (const std::exception& error) {
      failure = error.what();
    }
    report.emplace_back(test_name(i), std::move(failure));
    if (!end || std::chrono::steady_clock::now() < *end) continue;
    report.emplace_back("tests",
                        fmt::format("all tests together used up the time of a load ({:g} s); make them smaller, "
                                    "or raise triage::Limits",
                                    state_->context().limits.seconds));
    break;
  }
  tests_end_.reset();
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
