#pragma once
#include <ATen/core/Tensor.h>
#include <triage/front_end.h>

#include <lua.hpp>

#include <optional>
#include <string>
#include <vector>

namespace triage::lua {

/// The declaration of an output at the top of the stack, such as {name = "z", finite = true, min = 0}; its name takes
/// its place. Nothing where it declares no range. Throws LoadError, which begins with `where`.
std::optional<OutputRange> read_range(lua_State* L, const std::string& where);

/// Throws LoadError where the host could not do that with samples out of range: no output has a range, or, for
/// pass_through, one that has a range is not named as an input.
void check_on_violation(OnViolation on_violation, const Signature& signature);

/// For each output of `results` that has a range, a mask of the samples that are not within it, behind the others;
/// recorded, as what a script calls. Throws PolicyError for an output that has no range: sparse, or of complex numbers
/// between bounds.
void append_masks(lua_State* L, const Signature& signature, std::vector<at::Tensor>& results);

}  // namespace triage::lua
