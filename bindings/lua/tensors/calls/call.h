#pragma once
#include "bindings/lua/state/state.h"
#include "bindings/lua/tensors/calls/overloads.h"

#include <initializer_list>

/// Calls of operators from Lua: which overload a call means, and the call itself. Every call goes through
/// capture::call.
namespace triage::lua {

/// Calls `op` with the `count` values from stack index `first` on (the last may be a table of options); pushes the
/// results and returns how many. As a method the first value is `self`, wherever the schema has it. Throws a message
/// that lists the overloads when none fits.
int call_operator(lua_State* L, const Operator& op, int first, int count, bool method);

/// Pushes a function that calls `op`: `torch.add`, or `x:add` as a method.
void push_operator(lua_State* L, const Operator& op, bool method);

/// Pushes a function that calls exactly this overload, positionally.
void push_overload(lua_State* L, const Overload& overload);

/// Is the value at `index` a function that `push_operator` made?
bool is_operator_function(lua_State* L, int index);

torch::jit::Stack run(lua_State* L, const Overload& overload, torch::jit::Stack arguments, const std::string& name);

/// Calls an operator from C++ with all of its schema's arguments and returns its results. It is held to what the script
/// of `L` may call.
torch::jit::Stack run(lua_State* L, const char* name, const char* overload,
                      std::initializer_list<c10::IValue> arguments);
at::Tensor run_for_tensor(lua_State* L, const char* name, const char* overload,
                          std::initializer_list<c10::IValue> arguments);

/// Looks the operator up for `torch.<name>` or `x:<name>`, and pushes its function. Throws where there is none (with
/// the names that may have been meant) or where the script may not call it.
void push_named_operator(lua_State* L, const std::string& name, bool method);

/// Of a method that was called on what is at `index` (0: on nothing) and no tensor, as with '.' in place of ':'.
/// `method` may be null.
[[noreturn]] void refuse_without_tensor(lua_State* L, int index, const char* method);

}  // namespace triage::lua
