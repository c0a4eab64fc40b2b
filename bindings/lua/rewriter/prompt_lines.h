#pragma once
#include <string>
#include <string_view>

/// What a prompt makes of the lines typed there.
namespace triage::lua::rewriter {

/// `source` with the local variables of its outermost block turned into globals, so that the next line still knows
/// them: `local x <const> = 1` reads `x = 1`, `local function f()` reads `function f()`. A `<close>` variable stays
/// local: it is closed when the line has run. Throws SyntaxError.
std::string keep_locals(std::string_view source, std::string_view chunk_name);

/// Would more lines make a chunk of this? True where the text ends before the chunk does.
bool is_unfinished(std::string_view source);

}  // namespace triage::lua::rewriter
