#pragma once
#include <ATen/core/Tensor.h>

#include <lua.hpp>

#include <optional>
#include <string>
#include <vector>

#include "runtime/messages/near_words.h"

/// What error messages say of values, and of names that are unknown.
namespace triage::lua {

/// What error messages call the value: `int 3`, `string "x"`, `Tensor float32[2, 3]`, `nil`.
std::string describe(lua_State* L, int index);
std::string describe(const at::Tensor& tensor);

using messages::close_words;
using messages::did_you_mean;

/// "z, f, ..." of the function at `index`: a Lua function, or one of the library behind its checks. Nothing for one of
/// C.
std::optional<std::string> parameters_of(lua_State* L, int index);

}  // namespace triage::lua
