#pragma once
#include <vector>

#include "bindings/lua/rewriter/rewriter.h"
#include "bindings/lua/rewriter/syntax/syntax_tree.h"

namespace triage::lua::rewriter {

/// Values that nobody reads: flags that others replace, locals that hide a variable of the same name or that no line
/// reads; and locals that are read, though nothing was ever assigned to them.
std::vector<Warning> find_lost_values(const Chunk& chunk);

}  // namespace triage::lua::rewriter
