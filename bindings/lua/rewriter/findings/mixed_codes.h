#pragma once
#include <vector>

#include "bindings/lua/rewriter/rewriter.h"
#include "bindings/lua/rewriter/syntax/syntax_tree.h"

namespace triage::lua::rewriter {

/// Severities where a code of an error is meant, and codes where a severity is: both are small numbers, so that the
/// call takes them.
std::vector<Warning> find_mixed_codes(const Chunk& chunk);

}  // namespace triage::lua::rewriter
