#pragma once
#include <functional>
#include <string>
#include <vector>

#include "runtime/backends/fused/loop_ir.h"

namespace triage::fused {

/// The values that are written where they are used, in the expression of another: numbers of the loops, and steps that
/// one value of the same place takes.
std::vector<bool> inlined_values(const Loops& loops);

/// A value as C++, by the names of those that it takes; inlined ones are written out.
std::string expression(const Loops& loops, const std::vector<bool>& inlined, Ref ref,
                       const std::function<std::string(Ref)>& name);

/// "float", "Record<16>"
std::string type_code(const LoopValue& value);

}  // namespace triage::fused
