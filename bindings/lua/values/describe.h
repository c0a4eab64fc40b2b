#pragma once
#include <ATen/core/Tensor.h>

#include <lua.hpp>

#include <optional>
#include <string>
#include <vector>

/// What error messages say of values, and of names that are unknown.
namespace triage::lua {

/// What error messages call the value: `int 3`, `string "x"`, `Tensor float32[2, 3]`, `nil`.
std::string describe(lua_State* L, int index);
std::string describe(const at::Tensor& tensor);

/// Of `candidates`, those that `word` may be a misspelling of.
std::vector<std::string> close_words(const std::string& word, const std::vector<std::string>& candidates);

/// "; did you mean 'a' or 'b'?", empty where there are none.
std::string did_you_mean(const std::vector<std::string>& words);

/// "z, f, ..." of the function at `index`: a Lua function, or one of the library behind its checks. Nothing for one of
/// C.
std::optional<std::string> parameters_of(lua_State* L, int index);

}  // namespace triage::lua
