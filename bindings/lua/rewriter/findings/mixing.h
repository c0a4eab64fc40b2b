#pragma once
#include <vector>

#include "bindings/lua/rewriter/rewriter.h"
#include "bindings/lua/rewriter/syntax/syntax_tree.h"

namespace triage::lua::rewriter {

/// Layers that normalize by the mean and variance of the batch, where single samples are judged: whatever a bad sample
/// is replaced by, it changes the results of all others.
std::vector<Warning> find_mixing(const Chunk& chunk, bool policy);

}  // namespace triage::lua::rewriter
