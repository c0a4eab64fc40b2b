#pragma once
#include <lua.hpp>

/// What comparisons and conditions mean when a tensor is in them. Knows LibTorch only in its implementation.
namespace triage::lua {

bool is_tensor(lua_State* L, int index);
/// A tensor with the flags of its samples (values/guarded.h).
bool has_flags(lua_State* L, int index);

/// A bool tensor: in natural Lua, a condition for each sample.
bool is_mask(lua_State* L, int index);

/// A tensor that is no mask: as a condition it is true unless it is 0, and has to have one element.
bool is_number_tensor(lua_State* L, int index);
bool has_one_element(lua_State* L, int index);
/// Puts the mask of shape () that is true unless it is 0 into the place of such a tensor. For several elements it
/// raises an error that begins with `where`.
void replace_by_mask(lua_State* L, int index, const char* where);

/// Pushes the function `name` of scripts/prelude/natural.lua.
void push_library_function(lua_State* L, const char* name);

/// A number or truth value that a captured graph finds out again (values/number.h): "integer", "float" or "boolean";
/// null for other values. `specialize` puts the plain value in its place, which may be a graph break; other values
/// stay.
const char* symbolic_kind(lua_State* L, int index);
void specialize(lua_State* L, int index);

/// `a op b`, the values at 1 and 2, at least one of them a tensor; `method` is one of lt le gt ge eq ne. Pushes the
/// result: a mask, or for eq and ne with what is no number a boolean.
void compare_tensors(lua_State* L, const char* method);

/// Pushes what a tensor is as a condition: itself where that is true, else false. A tensor of one element is its value,
/// and true unless that is 0; of several it raises an error that begins with `where` ("file:line:column: ").
void push_truth(lua_State* L, int index, const char* where);

/// `ipairs(x)`: leaves iterator, tensor and start on the stack; iterates (0, x[0]), (1, x[1]), ...
int iterate_rows(lua_State* L);

/// Replaces the tensor at `index` by the number (or boolean) it holds; raises unless it has one element.
void replace_by_item(lua_State* L, int index);

}  // namespace triage::lua
