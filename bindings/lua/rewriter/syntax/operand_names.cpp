#include "bindings/lua/rewriter/syntax/operand_names.h"

#include <algorithm>

#include <cstdio>
#include <cstdlib>

namespace triage::lua::rewriter {
namespace {

std::string name_of_variable(const Expression& name) {
  if (!name.variable) return "global '" + name.text + "'";
  if (name.variable->compile_time_constant) return "";
  return (name.levels_out > 0 ? "upvalue '" : "local '") + name.text + "'";
}

/// Lua indexes by small integers with an instruction of its own, and names such a field so.
bool is_small_integer(const Expression& key) {
  constexpr unsigned long long largest = 255;
  return key.kind == ExpressionKind::Integer && std::strtoull(key.text.c_str(), nullptr, 0) <= largest;
}

std::string name_of_field(const Expression& index) {
  const Expression& key = *index.right;
  if (is_small_integer(key)) return "field 'integer index'";
  const bool in_environment = index.left->kind == ExpressionKind::Name && index.left->text == "_ENV";
  const std::string what = in_environment ? "global '" : "field '";
  return what + (key.kind == ExpressionKind::String ? key.text.substr(0, key.text.find('\0')) : "?") + "'";
}

/// The part of an expression that Lua compiles in its place: what parentheses hold, the right side of `1 and x`, `nil
/// or x`.
const Expression* same_value(const Expression& e) {
  if (e.kind == ExpressionKind::Parenthesized) return e.left;
  if (e.kind != ExpressionKind::Binary) return nullptr;
  const ExpressionKind left = e.left->kind;
  const bool is_false = left == ExpressionKind::Nil || left == ExpressionKind::False;
  const bool is_true = left <= ExpressionKind::String && !is_false;
  return (e.op == Operator::And && is_true) || (e.op == Operator::Or && is_false) ? e.right : nullptr;
}

}  // namespace

std::string operand_name(const Expression& operand) {
  const Expression* inner = &operand;
  while (const Expression* const same = same_value(*inner)) inner = same;
  switch (inner->kind) {
    case ExpressionKind::Name:
      return name_of_variable(*inner);
    case ExpressionKind::Index:
      return name_of_field(*inner);
    case ExpressionKind::String:
      return "constant '" + inner->text.substr(0, inner->text.find('\0')) + "'";
    default:
      return "";
  }
}

std::string string_literal(std::string_view text) {
  std::string literal = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      literal += '\\';
      literal += c;
    } else if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) {
      char code[8];
      std::snprintf(code, sizeof code, "\\%03d", static_cast<unsigned char>(c));
      literal += code;
    } else {
      literal += c;
    }
  }
  return literal + "\"";
}

std::string position(int call_line, int line, int column) {
  constexpr int kColumns = 65536;
  return std::to_string(std::min(column, kColumns - 1) + kColumns * std::max(line - call_line, 0));
}

}  // namespace triage::lua::rewriter
