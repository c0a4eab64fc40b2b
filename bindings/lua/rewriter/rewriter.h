#pragma once
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Rewrites Lua 5.4 source so that the things the VM hides become calls: comparisons, truth tests, concatenation,
/// function identities, writes. Lines stay where they are. The rewritten chunk is still plain Lua 5.4 text; it expects
/// its intrinsics (see `intrinsics()`) as upvalues, handed over by the loader.
namespace triage::lua::rewriter {

struct SyntaxError : std::runtime_error {
  SyntaxError(const std::string& message, int line, int column)
      : std::runtime_error(message), line(line), column(column) {}
  int line, column;  // 1-based
};

struct ParseOptions {
  bool policy =
      true;  // refuse what policies may not write (`local _ENV`, ...), and texts beyond the bounds of bounds.h
  std::function<void(size_t steps)> charge = {};  // called about every thousand steps; may throw to end the work
};

/// A finding of `triage check`: not an error, but probably not what was meant.
struct Warning {
  int line, column;
  std::string message;
};

/// What the text of a chunk says of it besides its meaning.
struct ChunkFacts {
  bool natural = false;                              // natural Lua, where `if`, `and`, `or` and `not` take masks
  std::vector<std::pair<int, std::string>> globals;  // the line of each global's name, in order, each pair once
};

/// Throws SyntaxError with Lua's own wording where Lua has one ("file:3: unexpected symbol near 'x'"). The result is
/// the text of a chunk that returns the rewritten main function when it is called with the intrinsics, in the order of
/// `intrinsics()`: `local __triage_lt, ... = ...; return function(...) <the source> end`, the source starting on line
/// 1.
std::string rewrite(std::string_view source, std::string_view chunk_name, const ParseOptions& options = {},
                    ChunkFacts* facts = nullptr);

/// Names of the intrinsics in the order in which the rewritten chunk takes them.
const std::vector<std::string>& intrinsics();

/// What `triage check` says of a source; throws SyntaxError.
std::vector<Warning> check(std::string_view source, std::string_view chunk_name, const ParseOptions& options = {});

}  // namespace triage::lua::rewriter
