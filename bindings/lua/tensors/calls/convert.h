#pragma once
#include "bindings/lua/state/state.h"
#include "bindings/lua/tensors/calls/overloads.h"

#include <c10/core/Scalar.h>

/// Lua values to and from the dispatcher's values, by what a schema asks for. Nothing here runs Lua code.
namespace triage::lua {

/// How well a Lua value fits a parameter: 0 exactly, more the further off, `no_fit` not at all. Overloads are chosen by
/// the smallest sum.
constexpr int no_fit = -1;
constexpr int cost_of_missing = 3;
int fit(lua_State* L, int index, const OverloadParam& param);
/// The same of an element of a list of integers: a number, or a 0-dim integer tensor, which is read (a param, or a
/// graph break).
int fit_integer(lua_State* L, int index);

/// Why a value fits none of `params` (the parameters that overloads have there): "expected int, got string "x"".
std::string misfit(lua_State* L, int index, at::ArrayRef<const OverloadParam*> params);

/// The value for the dispatcher; the value fits. `what` names the argument for messages ("x:sum, argument 'dim'").
c10::IValue to_ivalue(lua_State* L, int index, const OverloadParam& param, const std::string& what);

/// A 0-dim tensor that takes part in type promotion as a number, not as a tensor.
at::Tensor wrapped_number(const at::Scalar& scalar);

/// Pushes one result as one Lua value: tensors as userdata (undefined: nil), lists as tables.
void push_ivalue(lua_State* L, const c10::IValue& value);

/// A table of integers, for messages that name the operation (`what`).
std::vector<int64_t> check_integers(lua_State* L, int index, const std::string& what);

}  // namespace triage::lua
