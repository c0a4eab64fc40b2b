#pragma once
#include <vector>

#include "bindings/lua/rewriter/rewriter.h"

namespace triage::lua::rewriter {

struct Chunk;

/// Results that nobody gives or takes: a `run` and branches of IF that return nothing, and the flags of `fix` where the
/// flags that it was given are read later.
std::vector<Warning> find_missing_results(const Chunk& chunk);

}  // namespace triage::lua::rewriter
