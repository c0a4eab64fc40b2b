#pragma once
#include <ATen/core/ivalue.h>

#include <lua.hpp>

namespace triage::lua {

/// Puts `torch.save` and `torch.load` into the table `torch` (scripts that are trusted; a policy reaches no files):
///
///     torch.save(value, path)   a tensor, or tables of tensors, numbers, strings and booleans.
///                               By the ending .pt, .npy or .safetensors (triage/files.h)
///     torch.load(path)          what is in the file; `FILE:KEY` one tensor of several
void add_torch_files(lua_State* L);

/// `what` ("torch.save") reaches a file: no graph holds it.
void break_for_file(const char* what);

/// Pushes what a file of a policy holds. Its tensors are dense and share memory with nothing; each is charged before it
/// is made.
void push_constant(lua_State* L, const c10::IValue& value);

}  // namespace triage::lua
