#pragma once
#include <vector>

#include "bindings/lua/rewriter/rewriter.h"
#include "bindings/lua/rewriter/syntax/syntax_tree.h"

namespace triage::lua::rewriter {

/// Tensors that a script searches for bad rows (flag_nan and the like) and then hands, bad rows and all, to a layer:
/// the gradient of the layer's weight adds up over the rows, and 0 * NaN is NaN, so that one bad row spoils it whatever
/// masks the output later.
std::vector<Warning> find_unrepaired(const Chunk& chunk);

}  // namespace triage::lua::rewriter
