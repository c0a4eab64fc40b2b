#pragma once
#include "runtime/capture/graph_break.h"

#include <lua.hpp>

namespace triage::lua {

/// Adds what `scripts/prelude/capture.lua` needs to the table on top of the stack: running functions while graph breaks
/// raise, or while nothing is captured.
void add_break_control(lua_State* L);

/// While alive, the coroutine at `index` goes on: the scopes of `triage.error_on_graph_break` that it opened and
/// did not close hold for it, and for nobody else. (A value that is no coroutine has none.)
class CoroutineScope {
 public:
  CoroutineScope(lua_State* L, int index);
  ~CoroutineScope();
  CoroutineScope(const CoroutineScope&) = delete;
  CoroutineScope& operator=(const CoroutineScope&) = delete;
  /// The coroutine came to a halt, by itself: keeps its scopes for the next time. `index` as it was given.
  void suspend(int index) const;

 private:
  lua_State* L_;
  capture::OnGraphBreak::Then before_;
  int open_before_;
};

}  // namespace triage::lua
