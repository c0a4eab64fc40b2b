#pragma once
#include "bindings/lua/compile/compiled_function.h"

namespace triage::lua {

/// Is this call of a compiled function one that a capsule may be made of?
bool is_recorded(lua_State* L);

/// The call of a compiled function at stack index 1 with the arguments above it: `call` makes it. Where it fails, or
/// somebody asked for it (triage.record), a capsule is made.
int call_recorded(lua_State* L, const CompiledFunction& function, lua_CFunction call);

/// The function and the arguments from `first` to `last`, as the roots of a snapshot.
capsule::Json snapshot_of_call(lua_State* L, int function, int first, int last, capsule::SavedTensors& tensors,
                               const std::vector<std::string>& masked);

/// triage.record(fn, inputs, {file, masked}): what fn returns.
int record(lua_State* L);

}  // namespace triage::lua
