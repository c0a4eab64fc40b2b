#pragma once
#include <string>
#include <string_view>

#include "bindings/lua/rewriter/syntax/syntax_tree.h"

namespace triage::lua::rewriter {

/// How Lua names the operand of a failed operation: "local 'x'", "global 'print'", "upvalue 'x'", "field 'k'"; empty
/// where it has no name for it.
std::string operand_name(const Expression& operand);

/// `text` as a Lua string literal on one line.
std::string string_literal(std::string_view text);

/// What intrinsics learn of their place: the column, and how many lines below the line of the call the operator stands.
std::string position(int call_line, int line, int column);

}  // namespace triage::lua::rewriter
