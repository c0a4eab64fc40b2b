#pragma once
#include <vector>

#include "bindings/lua/rewriter/rewriter.h"
#include "bindings/lua/rewriter/syntax/syntax_tree.h"

namespace triage::lua::rewriter {

/// `torch.where(x > 0, x:log(), 0)`: the condition keeps `log` from values that it does not take, but its gradient is
/// 1/x for those all the same, and 0 * inf is NaN.
std::vector<Warning> find_unsafe_where(const Chunk& chunk);

}  // namespace triage::lua::rewriter
