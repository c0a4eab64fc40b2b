#pragma once
#include <cstddef>

/// How large the text of a policy may be. Lua's compiler walks over lists that these constructs lengthen, some of them
/// once for each member, and nothing can interrupt it; trees and rewritten text are several times as large as the
/// source. Texts of trusted scripts have no such bounds. docs/writing-policies.md lists them.
namespace triage::lua::rewriter::bounds {

constexpr size_t kBytes = 512 << 10;   // of one text
constexpr size_t kTokens = 100'000;    // names, numbers, strings, operators, ...
constexpr size_t kName = 255;          // bytes of a name
constexpr size_t kChain = 200;         // fields, indices and calls of one expression: a.b[1]:c() has three
constexpr size_t kOperators = 1'000;   // binary operators in a row: `a + b + c` has two
constexpr size_t kArms = 1'000;        // `elseif` of one `if`
constexpr size_t kJumps = 1'000;       // `goto`, `break` and labels of one function
constexpr size_t kFunctions = 10'000;  // in one text

}  // namespace triage::lua::rewriter::bounds
