#pragma once
#include "bindings/lua/state/state.h"

#include <string>

/// Gradient modes and `torch.autograd.grad`.
namespace triage::lua {

/// Adds `no_grad`, `enable_grad`, `is_grad_enabled`, `set_grad_enabled` and `autograd` to the table on top of the
/// stack.
void add_autograd(lua_State* L);

/// Whether the value is a table of options, not one that can be called: a module is what is to run.
bool is_options(lua_State* L, int index);

/// Before anything that changes what autograd keeps (`what`, as in "`backward`"): gradients and their graph belong to
/// the host, so a policy gets an error; while capturing it is a graph break.
void touch_autograd(const std::string& what);
/// The same where what is changed is the script's own: a graph break only.
void break_for_autograd(const std::string& what);
/// Before a script goes back through a graph. A policy may do so in its tests and when it is loaded, where that is of
/// the size of what it computed: not through gradients of gradients, whose cost has no bound, and with time left for
/// it.
void check_backward(lua_State* L, const std::string& what, bool create_graph);

}  // namespace triage::lua
