#include "bindings/lua/rewriter/predicates.h"

#include <cctype>

namespace triage::lua::rewriter {
namespace {

bool never_a_mask(const Expression& e) { return e.kind == ExpressionKind::Nil || e.kind == ExpressionKind::String; }

}  // namespace

bool is_logical(const Expression& e) {
  return e.kind == ExpressionKind::Binary && (e.op == Operator::And || e.op == Operator::Or);
}

bool is_concat(const Expression& e) { return e.kind == ExpressionKind::Binary && e.op == Operator::Concat; }

const char* comparison_intrinsic(Operator op) {
  switch (op) {
    case Operator::Less:
      return "__triage_lt(";
    case Operator::LessEqual:
      return "__triage_le(";
    case Operator::Greater:
      return "__triage_gt(";
    case Operator::GreaterEqual:
      return "__triage_ge(";
    case Operator::Equal:
      return "__triage_eq(";
    case Operator::NotEqual:
      return "__triage_ne(";
    default:
      return nullptr;
  }
}

bool is_comparison(const Expression& e) {
  if (e.kind != ExpressionKind::Binary || !comparison_intrinsic(e.op)) return false;
  const bool equality = e.op == Operator::Equal || e.op == Operator::NotEqual;
  return !equality || (!never_a_mask(*e.left) && !never_a_mask(*e.right));
}

bool is_open(const Expression& e) {
  switch (e.kind) {
    case ExpressionKind::Name:
    case ExpressionKind::Index:
    case ExpressionKind::Call:
    case ExpressionKind::MethodCall:
    case ExpressionKind::Varargs:
      return true;
    default:
      return false;
  }
}

bool is_chained(const Expression& e) { return is_comparison(e) && is_comparison(*e.left); }

bool gives_sizes(const Expression& e) {
  if (e.kind == ExpressionKind::MethodCall) return e.text == "size" && e.items.empty();
  if (e.kind == ExpressionKind::Name) {
    const Expression* const initial = e.variable ? e.variable->initial : nullptr;
    return initial && initial->kind != ExpressionKind::Name && gives_sizes(*initial);
  }
  return e.kind == ExpressionKind::Index && e.right->kind == ExpressionKind::String && e.right->text == "shape";
}

std::string unchained(const Expression& e, std::string_view source) {
  constexpr size_t longest = 60;
  const auto text = [&](size_t begin, size_t end, const char* instead) {
    const std::string_view part = source.substr(begin, end - begin);
    const bool shows = part.size() <= longest && part.find_first_of("\r\n") == std::string_view::npos;
    return shows ? std::string(part) : std::string(instead);
  };
  const Expression& left = *e.left;
  return "(" + text(left.begin, left.end, "a < b") + ") & (" + text(left.right->begin, left.right->end, "b") + " " +
         std::string(source.substr(e.op_begin, e.op_end - e.op_begin)) + " " + text(e.right->begin, e.right->end, "c") +
         ")";
}

bool is_none(const Expression& e) {
  if (e.kind == ExpressionKind::Nil) return true;
  return e.kind == ExpressionKind::Name && !e.variable && (e.text == "None" || e.text == "null" || e.text == "NULL");
}

bool can_be_a_number(const Expression& e) {
  if (is_open(e) || e.kind == ExpressionKind::Parenthesized) return true;
  if (e.kind == ExpressionKind::Unary)
    return e.op == Operator::Length || (e.op == Operator::Negate && can_be_a_number(*e.left));
  return e.kind == ExpressionKind::Binary && !is_concat(e) && !is_comparison(e);
}

bool can_be_a_mask(const Expression& e) {
  if (e.kind == ExpressionKind::Unary) return e.op != Operator::Not;
  if (e.kind == ExpressionKind::Binary) return e.op < Operator::Concat;  // comparisons test themselves
  return is_open(e);
}

bool can_be_a_natural_mask(const Expression& e) {
  for (const Expression* next = &e;; next = next->left) {  // chains of `and` lean to the left without limit
    if (is_open(*next) || is_comparison(*next)) return true;
    if (is_logical(*next)) {
      if (can_be_a_natural_mask(*next->right)) return true;
    } else if (next->kind == ExpressionKind::Binary) {
      return next->op < Operator::Concat;
    } else if (next->kind == ExpressionKind::Unary) {
      if (next->op != Operator::Not) return next->op != Operator::Length;
    } else if (next->kind != ExpressionKind::Parenthesized) {
      return false;
    }
  }
}

std::string field_name(std::string_view source, const Expression& value) {
  const auto skip_spaces = [&](size_t end) {
    while (end > 0 && std::isspace(static_cast<unsigned char>(source[end - 1]))) end--;
    return end;
  };
  size_t end = skip_spaces(value.begin);
  if (end == 0 || source[end - 1] != '=') return "";
  end = skip_spaces(end - 1);
  size_t begin = end;
  while (begin > 0 && (std::isalnum(static_cast<unsigned char>(source[begin - 1])) || source[begin - 1] == '_'))
    begin--;
  return std::string(source.substr(begin, end - begin));
}

}  // namespace triage::lua::rewriter
