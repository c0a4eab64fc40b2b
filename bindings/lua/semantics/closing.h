#pragma once
#include <lua.hpp>

/// What a policy leaves to be closed: the values of its `<close>` variables, and the fourth values of its generic `for`
/// loops. Lua calls their `__close` for every function that an error unwinds, one after the other, and goes on with the
/// next where one fails. A budget that ran out would be raised in each of a million. So the rewriter puts an object of
/// the library in the place of each value: it closes the value as Lua does, and does nothing once the script is at its
/// end (closes_nothing).
namespace triage::lua {

/// (value, name of its variable): what the variable that Lua closes holds.
int push_closing_value(lua_State* L);
/// (the values of a generic `for`): the same, with such an object as the fourth.
int push_iteration(lua_State* L);

}  // namespace triage::lua
