#pragma once
#include <lua.hpp>

/// A branch that the batch does not take is left by an error of our own (capture::CaptureAbort), which unwinds the
/// script. No code of the script may notice: neither its message handlers (capture/protected_calls.h) nor its
/// to-be-closed variables run for it, and what catches errors hands it on.
namespace triage::lua {

/// How many functions there are on the stack, the running one included.
int stack_depth(lua_State* L);

/// Before the error is raised: what functions about to be unwound would close by code of the script, is not closed.
/// Scopes of the library (torch.no_grad, ...) are.
void forget_closers(lua_State* L);

/// A handler of the script has seen the error at `index`, and is not to see it again where it is raised again.
void note_handled(lua_State* L, int index);
/// Whether that was noted of the error at `index`; then it is forgotten.
bool was_handled(lua_State* L, int index);

}  // namespace triage::lua
