#pragma once
#include "bindings/lua/state/state.h"
#include "runtime/backends/deadline.h"

#include <memory>
#include <string>
#include <vector>

namespace triage::lua {

struct StateOptions {
  bool sandboxed = true;                          // a policy; false: `triage exec`, which trusts its script
  bool trusted = false;                           // it may call every operator, though it is a policy
  Limits limits;                                  // of each load and each call
  std::string path;                               // names the script in messages
  std::function<void(const std::string&)> print;  // where `print` goes, a line a call; default: stdout
  std::vector<std::string> args;                  // `arg` of a trusted script
};

/// One interpreter, complete: libraries, tensors, prelude, and the environment that scripts see. Shares nothing with
/// any other. Not thread-safe; whoever uses it holds a mutex.
///
/// Budgets count only between `arm` and `disarm`. When one runs out, a LimitError is raised in the script, and raised
/// again at every further instruction, so that no `pcall` of the script can absorb it. Memory limits are soft: the
/// allocator counts and never refuses (Lua 5.4.4 uses freed memory when it is refused some); the hook and the bindings
/// look.
class ScriptState {
 public:
  /// Throws LoadError when the libraries could not be set up.
  explicit ScriptState(StateOptions options);
  ~ScriptState();
  ScriptState(const ScriptState&) = delete;
  ScriptState& operator=(const ScriptState&) = delete;

  lua_State* lua() const noexcept { return lua_; }
  Context& context() noexcept { return context_; }

  /// Starts a load or a call: full budgets, and the nearer of `deadline` and limits.seconds from now. Throws
  /// capture::StackError. Returns when the time of the limits is over, or `deadline`, whatever is first.
  std::optional<Deadline::Moment> arm(std::optional<Deadline::Moment> deadline = {});
  void disarm() noexcept;

  /// Pushes the table of globals that scripts of this state see.
  void push_environment();
  /// Puts the value at the top of the stack into that table as `name`, and pops it. A library table is made read-only
  /// for policies.
  void define(const char* name);

 private:
  static int assemble(lua_State* L);

  Context context_;
  StateOptions options_;
  lua_State* lua_ = nullptr;
  int environment_ = LUA_NOREF;
};

/// Armed while alive.
class Budget {
 public:
  explicit Budget(ScriptState& state, std::optional<Deadline::Moment> deadline = {})
      : state_(state), deadline_(state.arm(deadline)) {}
  ~Budget() { state_.disarm(); }
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

 private:
  ScriptState& state_;
  const Deadline deadline_;  // of graphs and programs that the script runs, itself or by functions of the host
};

}  // namespace triage::lua
