#pragma once
#include <triage/front_end.h>
#include <triage/params.h>

#include <lua.hpp>

#include <optional>
#include <string>
#include <vector>

namespace triage::lua {

/// The param `name` of a policy from what stands at the top of the stack: its default, or a declaration, a table with
/// the field `default`. Throws LoadError, which names the param and the field.
triage::Param read_param(lua_State* L, std::string name);

/// The value of a param at the top of the stack; nothing where it can be none.
std::optional<ParamValue> read_param_value(lua_State* L);

/// Of a test, at the top: values for params that the policy has, and that they take. Throws LoadError, which begins
/// with `where`.
void check_test_params(lua_State* L, const std::string& where, const std::vector<triage::Param>& params);

}  // namespace triage::lua
