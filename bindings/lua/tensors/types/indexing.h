#pragma once
#include <string_view>

#include "bindings/lua/state/state.h"

/// `x[...]` and `x[...] = v`. 0-based, half open, negative from the end. An index is an int, a mask or a tensor of
/// indices, or a table of such for several dimensions, in which also `{from, to, step}`, ":", "..." and "new" may
/// stand.
namespace triage::lua {

at::Tensor index(lua_State* L, const at::Tensor& tensor, int position);
void assign(lua_State* L, const at::Tensor& tensor, int position, int value);
/// Whether an item of an index is this string.
bool is_text(lua_State* L, int index, std::string_view text);

}  // namespace triage::lua
