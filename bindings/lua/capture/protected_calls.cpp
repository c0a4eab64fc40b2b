#include "bindings/lua/capture/protected_calls.h"

#include "bindings/lua/capture/open_chains.h"
#include "bindings/lua/semantics/chunk.h"
#include "bindings/lua/semantics/wrapping.h"
#include "bindings/lua/state/effects.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/state/unwinding.h"
#include "runtime/capture/recording/branch_guard.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/replay/trace_replayer.h"

namespace triage::lua {
namespace {

using capture::UntakenBranch;

/// An operator that raises inside a protected call is the script's to handle, on the next inputs too.
class ProtectedCall {
 public:
  ProtectedCall() {
    if ((replayer_ = capture::TraceReplayer::current())) replayer_->enter_protected();
    if (auto* recorder = capture::Recorder::current()) {
      serial_ = recorder->serial();
      recorder->enter_protected();
    }
  }
  ~ProtectedCall() {
    if (replayer_ && replayer_ == capture::TraceReplayer::current()) replayer_->leave_protected();
    auto* recorder = capture::Recorder::current();
    if (recorder && recorder->serial() == serial_) recorder->leave_protected();
  }
  ProtectedCall(const ProtectedCall&) = delete;
  ProtectedCall& operator=(const ProtectedCall&) = delete;

 private:
  capture::TraceReplayer* replayer_ = nullptr;
  uint64_t serial_ = 0;
};

bool is_unwinding() { return UntakenBranch::left() || capture::OutsideBranches::aborted(); }

/// Upvalues: the handler; whether it was set inside of the branch.
int shielded(lua_State* L) {
  const bool inside = lua_toboolean(L, lua_upvalueindex(2));
  lua_settop(L, 1);
  if (is_unwinding() || (UntakenBranch::active() && !inside) || was_handled(L, 1)) return 1;
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, 1, 1);
  return 1;
}

/// Puts what the script may not notice out of the reach of the message handler at `index`, a value that can be called.
void shield_handler(lua_State* L, int index) {
  index = lua_absindex(L, index);
  lua_pushvalue(L, index);
  lua_pushboolean(L, UntakenBranch::active());
  lua_pushcclosure(L, shielded, 2);
  lua_replace(L, index);
}

int protected_call(lua_State* L) {
  const ProtectedCall scope;
  const CaughtErrors caught(L);
  const int results = hand_on(L);
  if (!lua_toboolean(L, -results)) caught.note();
  go_on_unwinding(L);
  return results;
}

int protected_call_with_handler(lua_State* L) {
  const bool of_script = lua_isfunction(L, 2) && !lua_iscfunction(L, 2);
  if ((of_script && capture::Recorder::current()) || (lua_isfunction(L, 2) && has_natural_chunks(L)))
    shield_handler(L, 2);
  return protected_call(L);
}

/// Is it `pcall` or `xpcall`, as scripts find them?
bool is_protected_call(lua_CFunction function) {
  return function == guarded<protected_call> || function == guarded<protected_call_with_handler>;
}

/// Pushes the handler of the innermost xpcall around, where no pcall is inside of it; false where something else
/// catches. Nothing does where true comes without a handler (nil). To find a level Lua walks over all above it: further
/// away, the handler is called when the stack is unwound.
bool push_handler_around(lua_State* L) {
  constexpr int most = 1'000;
  lua_Debug frame;
  for (int level = 1; lua_getstack(L, level, &frame); ++level) {
    if (level > most) return false;
    lua_getinfo(L, "f", &frame);
    const lua_CFunction function = lua_tocfunction(L, -1);
    lua_pop(L, 1);
    if (!is_protected_call(function)) continue;
    if (!lua_getlocal(L, &frame, 2)) return false;  // of xpcall its handler
    if (lua_tocfunction(L, -1) == shielded) return true;
    lua_pop(L, 1);
    return false;
  }
  const bool main = lua_pushthread(L) == 1;
  lua_pop(L, 1);
  if (main) lua_pushnil(L);
  return main;
}

/// Upvalue: the handler of the host.
int handle_in_place(lua_State* L) {
  lua_settop(L, 1);
  if (is_unwinding() || UntakenBranch::active() || !push_handler_around(L)) return 1;
  if (lua_isnil(L, 2)) lua_copy(L, lua_upvalueindex(1), 2);
  lua_insert(L, 1);
  lua_call(L, 1, 1);
  note_handled(L, 1);
  return 1;
}

}  // namespace

int call_and_hand_on(lua_State* L, int arguments, lua_CFunction host_handler) {
  reserve(L, 0, "message handler");
  const int handler = lua_gettop(L) - arguments;
  lua_pushcfunction(L, host_handler);
  lua_pushcclosure(L, handle_in_place, 1);
  lua_insert(L, handler);
  const int status = lua_pcall(L, arguments, LUA_MULTRET, handler);
  lua_remove(L, handler);
  reserve(L, 0, "too many results");
  return status;
}

void wrap_protected_calls(lua_State* L) {
  lua_pushglobaltable(L);
  wrap_library_function(L, "pcall", guarded<protected_call>);
  wrap_library_function(L, "xpcall", guarded<protected_call_with_handler>);
  lua_pop(L, 1);
}

}  // namespace triage::lua
