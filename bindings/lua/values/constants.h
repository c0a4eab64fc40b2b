#pragma once
#include "bindings/lua/state/state.h"

#include <ATen/core/Generator.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include <optional>

/// `torch.float32`, `torch.strided`, `torch.channels_last`, `torch.None`, `torch.Generator(seed)`: values of their own.
/// Each constant exists once in a state, so that Lua's `==` compares them.
namespace triage::lua {

enum class ConstantKind : uint8_t { dtype, layout, memory_format, none };

struct TorchConstant {
  ConstantKind kind;
  int8_t value;
};

/// Puts the constants and `Generator` into the table on top of the stack (`torch`).
void add_constants(lua_State* L);

void push_dtype(lua_State* L, at::ScalarType dtype);
void push_layout(lua_State* L, at::Layout layout);
void push_none(lua_State* L);

const TorchConstant* test_constant(lua_State* L, int index);
std::optional<at::ScalarType> test_dtype(lua_State* L, int index);
bool is_none(lua_State* L, int index);  // torch.None, nil or no value
const at::Generator* test_generator(lua_State* L, int index);

/// "torch.float32"
std::string dtype_name(at::ScalarType dtype);
std::string constant_name(const TorchConstant& constant);

/// Throws a message that shows the forms there are.
c10::Device parse_device(const std::string& text);

}  // namespace triage::lua
