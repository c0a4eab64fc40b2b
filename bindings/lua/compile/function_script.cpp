#include "bindings/lua/capture/open_chains.h"
#include "bindings/lua/capture/protected_calls.h"
#include "bindings/lua/capture/user_code.h"
#include "bindings/lua/compile/compiled_function.h"
#include "bindings/lua/compile/recorded_call.h"
#include "bindings/lua/semantics/chunk.h"
#include "bindings/lua/state/modes.h"
#include "bindings/lua/state/protected.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/unwinding.h"
#include "bindings/lua/values/guarded.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/recording/branch_guard.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/replay/trace_replayer.h"
#include "runtime/compat/autocast.h"

#include <c10/core/GradMode.h>

#include <string>

namespace triage::lua {
namespace {

/// Calls the function below its `arguments`. Errors pass through to the script that called. Where natural Lua may have
/// to give up the capture, that ends here.
void call_function(lua_State* L, int arguments) {
  if (!capture::Recorder::current() || !has_natural_chunks(L)) return call_for_all(L, arguments);
  capture::OutsideBranches::allow_restart(stack_depth(L));
  const int status = call_and_hand_on(L, arguments, keep_traceback);
  if (capture::OutsideBranches::aborted()) throw capture::CaptureAbort("the capture was aborted");
  if (status != LUA_OK) lua_error(L);
}

}  // namespace

FunctionScript::FunctionScript(lua_State* L, const CompiledFunction& function, std::vector<std::string> inputs)
    : L_(L),
      function_(function.function),
      name_(function.name),
      made_at_(function.made_at),
      fullgraph_(function.options.fullgraph) {
  signature_.inputs = std::move(inputs);
}

Script::Definition place_of(lua_State* L, int function, const Source& made_at) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, function);
  Script::Definition definition = definition_of(L, -1);
  lua_pop(L, 1);
  if (definition.where.file.empty() && !made_at.file.empty())
    definition = {made_at, "  " + made_at.file + ":" + std::to_string(made_at.line)};
  return definition;
}

FunctionScript::Definition FunctionScript::definition() const {
  if (!definition_) definition_ = place_of(L_, function_, made_at_);
  return *definition_;
}

capsule::Json FunctionScript::save_state(capsule::SavedTensors& tensors, const std::vector<std::string>& masked) {
  return snapshot_of_call(L_, function_, first_argument_, lua_gettop(L_), tensors, masked);
}

/// A graph break of the function as a whole, which has returned: it is told to be where the function begins.
void FunctionScript::break_behind(capture::Break kind, const std::string& what, const char* hint) const {
  const capture::UserCode caller = user_code(L_);
  const capture::ScriptScope script(
      {[this] { return definition().where; }, [&] { return caller.stack() + "\n" + definition().quoted; }});
  capture::graph_break(kind, what, hint);
}

/// No graph holds a mode that outlives the call.
void FunctionScript::refuse_another_mode(bool grad_mode, uint64_t autocast) const {
  if (c10::GradMode::is_enabled() != grad_mode)
    break_behind(
        capture::Break::mode,
        grad_mode ? "the function returns with gradient mode off" : "the function returns with gradient mode on",
        "Restore the mode in the function, with `local _ <close> = torch.no_grad()` or torch.no_grad(fn).");
  if (compat::autocast_state() != autocast)
    break_behind(capture::Break::mode, "the function returns with a different autocast mode",
                 "Restore the mode in the function, with `local _ <close> = torch.autocast(...)` or "
                 "torch.autocast(device, fn).");
}

/// The script gets the caller's own values: it can tell whether two are the same one, and whether it saw one before.
void FunctionScript::push_arguments(lua_State* L, int last, at::ArrayRef<at::Tensor> inputs,
                                    std::vector<LentTensor>& lent) const {
  const int first_pushed = lua_gettop(L) + 1;
  size_t next = 0;
  for (int i = first_argument_; i <= last; ++i) {
    const at::Tensor* given = test_tensor(L, i);
    if (!given) {
      lua_pushvalue(L, i);
      continue;
    }
    const at::Tensor& input = inputs[next++];
    int same = first_argument_;
    while (!lua_rawequal(L, same, i)) ++same;
    if (same < i)
      lua_pushvalue(L, first_pushed + same - first_argument_);
    else if (input.is_same(*given) || (variables_ && variables_->numbers.count(lua_touserdata(L, i))))
      lua_pushvalue(L, i);  // nothing is recorded, or the graph has it as a variable
    else {
      lent.emplace_back(L, i, input);
      lua_pushvalue(L, i);
    }
  }
}

std::vector<at::Tensor> FunctionScript::call(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor>,
                                             std::optional<std::chrono::steady_clock::time_point>) {
  lua_State* L = L_;
  int last = lua_gettop(L);
  if (auto* recording = capsule::CapsuleRecording::current()) recording->before_script(*this);
  capture::FlagsTracker tracker;
  const capture::ScriptScope script(user_code(L));
  const capture::OnGraphBreak restore_breaks(capture::OnGraphBreak::current());
  reserve(L, static_cast<size_t>(last), "too many arguments");
  int base = lua_gettop(L);
  lua_rawgeti(L, LUA_REGISTRYINDEX, function_);
  std::vector<LentTensor> lent;
  push_arguments(L, last, inputs, lent);
  const Modes before;
  const uint64_t autocast = compat::autocast_state();
  forget_chains(L);
  try {
    call_function(L, last - first_argument_ + 1);
  } catch (const capture::CaptureAbort&) {
    lua_settop(L, base);
    before.restore();
    throw;
  }
  refuse_another_mode(before.grad, autocast);
  check_finished_chains(L);
  std::vector<at::Tensor> results;
  flags_outputs_.clear();
  int other = 0;  // the first result that is no tensor
  for (int i = base + 1; i <= lua_gettop(L); ++i) {
    const at::Tensor* tensor = test_tensor(L, i);
    if (!tensor) {
      if (!other) other = i;
      continue;
    }
    results.push_back(*tensor);
    flags_outputs_.push_back(tracker.is_flags(*tensor));
  }
  if (other) {
    if (auto* replayer = capture::TraceReplayer::current()) replayer->note_escape();
    break_behind(capture::Break::other_result,
                 "the function returns a value that is not a tensor: result " + std::to_string(other - base) + " is " +
                     (lua_isnil(L, other) ? "nil" : std::string("a ") + kind_of(L, other)),
                 "Return tensors only, or do not compile this function.");
    lua_createtable(L, lua_gettop(L) - base, 1);
    for (int i = base + 1; i < lua_gettop(L); ++i) {
      lua_pushvalue(L, i);
      lua_rawseti(L, -2, i - base);
    }
    lua_pushinteger(L, lua_gettop(L) - 1 - base);
    lua_setfield(L, -2, "n");
    results_ = luaL_ref(L, LUA_REGISTRYINDEX);
  }
  capture::end_segment();
  lua_settop(L, base);
  return results;
}

}  // namespace triage::lua
