#pragma once
struct lua_State;

namespace triage::lua {

/// The innermost state that runs a script on this thread: C++ that calls operators on its behalf is held to what it may call.
/// Null where none runs.
lua_State* running_state() noexcept;
/// Returns what was running.
lua_State* set_running_state(lua_State* L) noexcept;

}  // namespace triage::lua
