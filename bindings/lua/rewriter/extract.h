#pragma once
#include <string>
#include <string_view>

namespace triage::lua::rewriter {

/// The text of a chunk that returns one function of `source`, by its number (Function::id), and runs nothing else of
/// it. The function stands on the lines where it stood. Variables from outside of it are locals of the chunk without
/// values, but for constants that Lua compiles in. Throws SyntaxError, also where there is no such function.
std::string extract_function(std::string_view source, std::string_view chunk_name, int number);

}  // namespace triage::lua::rewriter
