#pragma once
#include <string_view>
#include <vector>

#include "bindings/lua/rewriter/rewriter.h"
#include "bindings/lua/rewriter/syntax/syntax_tree.h"

namespace triage::lua::rewriter {

/// Habits of Python that are legal Lua and mean something else there: comparisons with NaN, `x.shape[0]`,
/// `x:max(1)[0]`.
std::vector<Warning> find_foreign(const Chunk& chunk, std::string_view source);

}  // namespace triage::lua::rewriter
