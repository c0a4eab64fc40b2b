#pragma once
#include <string>
#include <string_view>

#include "bindings/lua/rewriter/syntax/syntax_tree.h"

/// What an expression can turn out to be, as far as the source tells.
namespace triage::lua::rewriter {

/// `and` or `or`.
bool is_logical(const Expression& e);
bool is_concat(const Expression& e);

/// The call that a comparison becomes, "__triage_lt(", or null where the operator is none.
const char* comparison_intrinsic(Operator op);
/// A comparison that needs the runtime: with nil, and with a string, nothing but Lua's own equality can come out.
bool is_comparison(const Expression& e);

/// `a < b < c` without parentheses, which compares the result of `a < b`; and what to write, `(a < b) & (b < c)`.
bool is_chained(const Expression& e);
std::string unchained(const Expression& e, std::string_view source);

/// `x.shape`, `x:size()`, or a local that was declared with one: a list of sizes.
bool gives_sizes(const Expression& e);
/// `nil`, or what other languages write for it.
bool is_none(const Expression& e);

/// Nothing is known of its value before it runs: a variable, a field, a call, `...`.
bool is_open(const Expression& e);
/// Can Lua find a symbolic number where it wants a bound or a key?
bool can_be_a_number(const Expression& e);
/// Does a truth test of this expression itself (not of its operands) need the runtime?
bool can_be_a_mask(const Expression& e);
/// In natural Lua, where comparisons and `and`, `or`, `not` give masks too.
bool can_be_a_natural_mask(const Expression& e);

/// `name` of a table's field `name = value`; empty where the value has none.
std::string field_name(std::string_view source, const Expression& value);

}  // namespace triage::lua::rewriter
