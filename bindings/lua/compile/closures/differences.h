#pragma once
#include "bindings/lua/compile/compiled_function.h"

#include <optional>
#include <string>
#include <vector>

/// What of an environment is not as it was in another: why the graphs of the one do not fit a call in the other.
namespace triage::lua {

/// The arguments of the call, which begin at stack index 2, as a person writes them; and the names of the parameters.
void note_arguments(lua_State* L, int function, int last, CompiledFunction::ClosureEnvironment& environment);

/// Whether argument `i` (from 0) of the calls of this environment is a tensor.
bool is_tensor_argument(const CompiledFunction::ClosureEnvironment& environment, size_t i);

/// The first thing that differs, without its values: "argument 2 ('rate')", "upvalue 'cfg'". Costs a comparison.
std::string differing_guard(const CompiledFunction::ClosureEnvironment& before,
                            const CompiledFunction::ClosureEnvironment& now);

/// ... with its values, where they are short, and for a field of a table the way there: "upvalue 'cfg.k' was 3, is now
/// 4". `now` is the environment of the function as `L` has it: it is read once more.
std::string difference(lua_State* L, int function, const CompiledFunction::ClosureEnvironment& before,
                       const CompiledFunction::ClosureEnvironment& now);

}  // namespace triage::lua
