#pragma once
#include <string>
#include <string_view>

namespace triage::lua::rewriter {

/// How Lua shows a chunk name in messages: "@dir/file.lua" as the path (its end, where it is long), "=name" as the
/// name, anything else as `[string "first line..."]`.
std::string display_name(std::string_view chunk_name);

}  // namespace triage::lua::rewriter
