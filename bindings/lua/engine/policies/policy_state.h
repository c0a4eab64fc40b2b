#pragma once
#include <triage/front_end.h>

#include <lua.hpp>

#include <vector>

namespace triage::lua {

/// state = { last = { shape = {"N", 8}, dtype = torch.float32, init = 0 } }, of the policy's table at `table`, in the
/// order of names. Throws LoadError.
std::vector<StateSpec> read_state(lua_State* L, int table);

/// Pushes the table `s`: the tensors by name.
void push_state(lua_State* L, const std::vector<StateSpec>& state, at::ArrayRef<at::Tensor> values);

/// The `state` of a test, a table of tensors and numbers at the top of the stack, for a batch of so many samples: what
/// it lacks is as before the first call, a number stands for all elements, and rows of a batch of another size are
/// taken again and again.
std::vector<at::Tensor> read_test_state(lua_State* L, const std::vector<StateSpec>& state, int64_t batch);
/// Throws LoadError, that begins with `where`, for a `state` of a test, at the top, that no call could begin with.
void check_test_state(lua_State* L, const std::string& where, const std::vector<StateSpec>& state);

}  // namespace triage::lua
