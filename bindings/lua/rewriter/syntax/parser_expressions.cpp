#include "bindings/lua/rewriter/syntax/parser.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "bindings/lua/rewriter/syntax/bounds.h"

namespace triage::lua::rewriter {
namespace {

constexpr int kUnaryPriority = 12;

struct Priority {
  int left, right;
};  // a larger right side binds to the left; a smaller one to the right

// In the order of Operator; Lua's table.
constexpr Priority kPriorities[] = {{10, 10}, {10, 10}, {11, 11}, {11, 11}, {14, 13}, {11, 11},
                                    {11, 11},                                                  // + - * % ^ / //
                                    {6, 6},   {4, 4},   {5, 5},   {7, 7},   {7, 7},            // & | ~ << >>
                                    {9, 8},                                                    // ..
                                    {3, 3},   {3, 3},   {3, 3},   {3, 3},   {3, 3},   {3, 3},  // == < <= ~= > >=
                                    {2, 2},   {1, 1}};                                         // and or

Operator binary_operator(const Token& token) {
  static constexpr std::pair<TokenKind, Operator> tokens[] = {{TokenKind::FloorDivide, Operator::FloorDivide},
                                                              {TokenKind::Concat, Operator::Concat},
                                                              {TokenKind::Equal, Operator::Equal},
                                                              {TokenKind::NotEqual, Operator::NotEqual},
                                                              {TokenKind::LessEqual, Operator::LessEqual},
                                                              {TokenKind::GreaterEqual, Operator::GreaterEqual},
                                                              {TokenKind::ShiftLeft, Operator::ShiftLeft},
                                                              {TokenKind::ShiftRight, Operator::ShiftRight},
                                                              {TokenKind::And, Operator::And},
                                                              {TokenKind::Or, Operator::Or}};
  static constexpr std::pair<char, Operator> characters[] = {
      {'+', Operator::Add},    {'-', Operator::Subtract}, {'*', Operator::Multiply}, {'%', Operator::Modulo},
      {'^', Operator::Power},  {'/', Operator::Divide},   {'&', Operator::BitAnd},   {'|', Operator::BitOr},
      {'~', Operator::BitXor}, {'<', Operator::Less},     {'>', Operator::Greater}};
  for (const auto& [kind, op] : tokens)
    if (token.is(kind)) return op;
  for (const auto& [character, op] : characters)
    if (token.is(character)) return op;
  return Operator::None;
}

Operator unary_operator(const Token& token) {
  if (token.is(TokenKind::Not)) return Operator::Not;
  if (token.is('-')) return Operator::Negate;
  if (token.is('~')) return Operator::BitNot;
  if (token.is('#')) return Operator::Length;
  return Operator::None;
}

/// An expression that continues `first` to the right begins where it begins.
void begin_with(Expression& whole, const Expression& first) {
  whole.line = first.line;
  whole.column = first.column;
  whole.begin = first.begin;
}

void set_operator(Expression& expression, const Token& token) {
  expression.op_line = token.line;
  expression.op_column = token.column;
  expression.op_begin = token.begin;
  expression.op_end = token.end;
}

}  // namespace

Expression* LuaParser::new_expression(ExpressionKind kind) {
  Expression& expression = chunk_->expressions.emplace_back();
  expression.kind = kind;
  expression.line = token_.line;
  expression.column = token_.column;
  expression.begin = token_.begin;
  return &expression;
}

Expression* LuaParser::finish(Expression* expression) {
  expression->end = previous_end_;
  expression->end_line = previous_line_;
  return expression;
}

std::vector<Expression*> LuaParser::parse_expressions() {
  std::vector<Expression*> expressions{parse_expression()};
  while (accept(',')) expressions.push_back(parse_expression());
  return expressions;
}

/// Reads while operators bind stronger than `limit`.
Expression* LuaParser::parse_expression(int limit) {
  const NestingLevel level(*this);
  Expression* left = unary_operator(token_) != Operator::None ? parse_unary() : parse_simple();
  for (size_t length = 1;; length++) {
    const Operator op = binary_operator(token_);
    if (op == Operator::None || kPriorities[static_cast<int>(op)].left <= limit) return left;
    bound(length, bounds::kOperators, "operators in a row");
    Expression* const whole = new_expression(ExpressionKind::Binary);
    begin_with(*whole, *left);
    whole->op = op;
    set_operator(*whole, token_);
    advance();
    whole->left = left;
    whole->right = parse_expression(kPriorities[static_cast<int>(op)].right);
    left = finish(whole);
  }
}

Expression* LuaParser::parse_unary() {
  Expression* const whole = new_expression(ExpressionKind::Unary);
  whole->op = unary_operator(token_);
  set_operator(*whole, token_);
  advance();
  whole->left = parse_expression(kUnaryPriority);
  return finish(whole);
}

Expression* LuaParser::parse_simple() {
  static constexpr std::pair<TokenKind, ExpressionKind> literals[] = {
      {TokenKind::Number, ExpressionKind::Number}, {TokenKind::Integer, ExpressionKind::Integer},
      {TokenKind::String, ExpressionKind::String}, {TokenKind::Nil, ExpressionKind::Nil},
      {TokenKind::True, ExpressionKind::True},     {TokenKind::False, ExpressionKind::False},
      {TokenKind::Dots, ExpressionKind::Varargs}};
  const auto* const kind =
      std::find_if(std::begin(literals), std::end(literals), [&](const auto& literal) { return at(literal.first); });
  if (kind != std::end(literals)) {
    if (at(TokenKind::Dots) && !scopes_.function()->is_vararg) fail("cannot use '...' outside a vararg function");
    Expression* const literal = new_expression(kind->second);
    literal->text = token_.text;
    advance();
    return finish(literal);
  }
  if (!at(TokenKind::Function)) return at('{') ? parse_table() : parse_suffixed();
  const int line = lexer_.line();
  const size_t begin = token_.begin;
  Expression* const function = new_expression(ExpressionKind::Function);
  advance();
  function->function = parse_function_body(line, begin, false);
  return finish(function);
}

Expression* LuaParser::parse_name() {
  Expression* const name = new_expression(ExpressionKind::Name);
  name->text = expect_name();
  scopes_.resolve(*name);
  return finish(name);
}

Expression* LuaParser::parse_primary() {
  if (at(TokenKind::Name)) return parse_name();
  if (!at('(')) fail("unexpected symbol");
  const int line = lexer_.line();
  Expression* const whole = new_expression(ExpressionKind::Parenthesized);
  advance();
  whole->left = parse_expression();
  expect_closing(')', '(', line);
  return finish(whole);
}

Expression* LuaParser::parse_suffixed() {
  Expression* expression = parse_primary();
  for (size_t length = 0;; length++) {
    bound(length, bounds::kChain, "fields and calls in one chain");
    if (at('.')) {
      expression = parse_field(expression);
    } else if (at('[')) {
      Expression* const index = new_expression(ExpressionKind::Index);
      begin_with(*index, *expression);
      set_operator(*index, token_);
      advance();
      index->left = expression;
      index->right = parse_expression();
      expect(']');
      expression = finish(index);
    } else if (at(':') || at('(') || at('{') || at(TokenKind::String)) {
      expression = parse_call(expression);
    } else {
      return expression;
    }
  }
}

/// `object.name`, and in function statements `object:name`.
Expression* LuaParser::parse_field(Expression* object) {
  Expression* const index = new_expression(ExpressionKind::Index);
  begin_with(*index, *object);
  set_operator(*index, token_);
  advance();
  index->left = object;
  index->right = new_expression(ExpressionKind::String);
  index->right->text = expect_name();
  finish(index->right);
  return finish(index);
}

Expression* LuaParser::parse_call(Expression* callee) {
  Expression* const call = new_expression(at(':') ? ExpressionKind::MethodCall : ExpressionKind::Call);
  begin_with(*call, *callee);
  call->left = callee;
  set_operator(*call, token_);
  if (accept(':')) {
    set_operator(*call, token_);
    call->text = expect_name();
  }
  call->bare_argument = true;
  if (at(TokenKind::String)) {
    call->items.push_back(parse_simple());
  } else if (at('{')) {
    call->items.push_back(parse_table());
  } else if (at('(')) {
    call->bare_argument = false;
    advance();
    if (!at(')')) call->items = parse_expressions();
    if (at('=') && call->items.back()->kind == ExpressionKind::Name) {
      const std::string& name = call->items.back()->text;
      fail("')' expected", "Lua passes named arguments in a table: {" + name + " = ...} for " + name + "=...");
    }
    expect_closing(')', '(', call->line);
  } else {
    fail("function arguments expected");
  }
  return finish(call);
}

Expression* LuaParser::parse_table() {
  const int line = lexer_.line();
  Expression* const table = new_expression(ExpressionKind::Table);
  expect('{');
  while (!at('}')) {
    parse_table_field(*table);
    if (!accept(',') && !accept(';')) break;
  }
  expect_closing('}', '{', line);
  return finish(table);
}

void LuaParser::parse_table_field(Expression& table) {
  std::string key;
  if (at('[')) {
    advance();
    table.items.push_back(parse_expression());
    table.keys.emplace_back();
    expect(']');
    expect('=');
  } else if (at(TokenKind::Name) && peek().is('=')) {
    key = expect_name();
    expect('=');
  }
  table.items.push_back(parse_expression());
  table.keys.push_back(std::move(key));
}

}  // namespace triage::lua::rewriter
