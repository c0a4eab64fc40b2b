#pragma once

namespace triage::lua {

/// Throws LoadError when the process resolves Lua's functions to a Lua compiled as C: it would longjmp over
/// destructors. That happens when the host itself links plain liblua5.4, whose symbols have the same names. Checked
/// once.
void check_lua_library();

}  // namespace triage::lua
