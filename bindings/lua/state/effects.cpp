#include "bindings/lua/state/effects.h"

#include "bindings/lua/state/state.h"
#include "runtime/capture/recording/branch_guard.h"
#include "runtime/capture/recording/recorder.h"

#include <triage/error.h>

#include <cstdlib>

namespace triage::lua {
namespace {

/// Runs what may throw on behalf of C functions that know only Lua errors.
template <typename Action>
void raise_as_lua_error(lua_State* L, const Action& action) {
  try {
    action();
    return;
  } catch (const std::exception& error) {
    raise_error(L, error);  // pushes the error value only
  }
  lua_error(L);
}

}  // namespace

uint64_t current_capture() noexcept {
  const capture::Recorder* recorder = capture::Recorder::current();
  return recorder ? recorder->serial() : 0;
}

int current_branch() noexcept {
  const capture::Recorder* recorder = capture::Recorder::current();
  return recorder ? recorder->branch_depth() : 0;
}

bool effects_allowed() noexcept {
  if (!capture::EffectsAllowed::active()) return false;
  capture::OutsideBranches::forbid_restart();
  return true;
}
uint64_t current_selection() noexcept { return capture::BranchGuard::selection().serial; }
bool branch_per_sample() noexcept { return capture::BranchGuard::chooses_per_sample(); }
int selection_depth() noexcept { return capture::BranchGuard::selection().depth; }

void refuse_write(lua_State* L, const std::string& what, const std::string& hint) {
  raise_as_lua_error(L, [&] { throw PolicyError(what + ". " + hint); });
  std::abort();  // it raised
}

void refuse_in_selection(lua_State* L, const std::string& what) {
  if (selection_depth() == 0) return;
  refuse_write(
      L, what + " is not allowed in a branch of an `if` whose condition is a mask: that branch runs for every sample",
      "Do it before or after the `if`.");
}

void break_graph(lua_State* L, capture::Break kind, const std::string& what, const std::string& hint) {
  raise_as_lua_error(L, [&] { capture::graph_break(kind, what, hint); });
}

void go_on_unwinding(lua_State* L) {
  if (capture::UntakenBranch::left()) raise_as_lua_error(L, [] { capture::UntakenBranch::leave(); });
}

bool has_expired(lua_State* L) noexcept { return context(L).expired; }
bool closes_nothing(lua_State* L) noexcept { return has_expired(L) || capture::UntakenBranch::left(); }

void bump_epoch(lua_State* L) { context(L).epoch++; }

bool is_policy(lua_State* L) { return context(L).sandboxed; }

void charge_bytes(lua_State* L, size_t bytes) {
  raise_as_lua_error(L, [&] { charge(L, bytes); });
}

void charge_string(lua_State* L, size_t bytes) {
  raise_as_lua_error(L, [&] { charge_text(L, bytes); });
}

void check_key(lua_State* L, int index) {
  raise_as_lua_error(L, [&] { note_key(L, index); });
}

}  // namespace triage::lua
