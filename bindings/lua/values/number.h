#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <lua.hpp>

#include <optional>

/// Numbers and truth values that a captured graph finds out again in every run (`x:item()` under
/// capture_scalar_outputs, sizes). Scripts take them for numbers: arithmetic and comparisons give more of them and are
/// recorded; whatever needs the value itself (a condition, a loop, a key, a string) *settles* it. When the capture is
/// over they are the plain values they were in it.
namespace triage::lua {

/// The table on top of the stack becomes the metatable of all such numbers. Pops it. (numbers/arithmetic.h)
void set_number_metatable(lua_State* L);

/// Pushes what the 0-dim tensor stands for: the plain value where the capture knows it for every run.
void push_number(lua_State* L, at::Tensor tensor);

/// Pushes the size of a dimension, in a capture as such a number; all sizes as a list, and their product.
void push_size(lua_State* L, const at::Tensor& tensor, int64_t dim);
void push_shape(lua_State* L, const at::Tensor& tensor);
void push_numel(lua_State* L, const at::Tensor& tensor);

/// The tensor of a number or truth value; null where the value at `index` is no such thing.
const at::Tensor* test_symbolic(lua_State* L, int index);
/// The same of numbers only, and only while the capture that it belongs to runs: what may stand for a number in a
/// recorded call.
const at::Tensor* test_number(lua_State* L, int index);
bool is_whole_number(const at::Tensor& number);

/// Puts the plain value in the place of a number or truth value at `index`; other values stay. May raise a graph break.
void specialize_number(lua_State* L, int index);

/// Whether the value is an integer, or a float that is whole.
bool is_whole(lua_State* L, int index);

/// A Lua number or boolean as a Scalar; nothing when it is neither.
std::optional<at::Scalar> test_scalar(lua_State* L, int index);
void push_scalar(lua_State* L, const at::Scalar& scalar);

}  // namespace triage::lua
