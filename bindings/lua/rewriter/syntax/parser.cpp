#include "bindings/lua/rewriter/syntax/parser.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "bindings/lua/rewriter/syntax/bounds.h"

namespace triage::lua::rewriter {
namespace {

constexpr int kMaxLocals = 200;

bool is_literal(const Expression& expression) { return expression.kind <= ExpressionKind::String; }

bool has_many_values(const Expression& expression) {
  return expression.kind == ExpressionKind::Varargs || expression.kind == ExpressionKind::Call ||
         expression.kind == ExpressionKind::MethodCall;
}

}  // namespace

std::unique_ptr<Chunk> parse(std::string_view source, std::string_view chunk_name, const ParseOptions& options) {
  return LuaParser(source, chunk_name, options).parse_chunk();
}

LuaParser::LuaParser(std::string_view source, std::string_view chunk_name, const ParseOptions& options)
    : TokenStream(source, chunk_name, options),
      chunk_(std::make_unique<Chunk>()),
      scopes_([this](const std::string& message) { fail_meaning(message); }, work_) {}

std::unique_ptr<Chunk> LuaParser::parse_chunk() {
  chunk_->start = lexer_.start();
  chunk_->main = &chunk_->functions.emplace_back();
  chunk_->main->is_vararg = true;
  scopes_.open_function(chunk_->main);
  bound(lexer_.source().size(), bounds::kBytes, "bytes");
  advance();
  chunk_->main->body = parse_statements();
  expect(TokenKind::EndOfFile);
  scopes_.close_function();
  work_.settle();
  return std::move(chunk_);
}

bool LuaParser::at_block_end(bool with_until) const {
  return at(TokenKind::Else) || at(TokenKind::Elseif) || at(TokenKind::End) || at(TokenKind::EndOfFile) ||
         (with_until && at(TokenKind::Until));
}

Block* LuaParser::parse_statements() {
  Block* const block = &chunk_->blocks.emplace_back();
  while (!at_block_end(true)) {
    const bool last = at(TokenKind::Return);
    parse_statement(*block);
    if (last) break;
  }
  return block;
}

Block* LuaParser::parse_block(bool is_loop) {
  scopes_.open_block(is_loop);
  Block* const block = parse_statements();
  scopes_.close_block();
  return block;
}

void LuaParser::finish(Statement& statement) {
  statement.end = previous_end_;
  statement.end_line = previous_line_;
}

void LuaParser::parse_statement(Block& block) {
  const NestingLevel level(*this);
  if (accept(';')) return;
  Statement& statement = chunk_->statements.emplace_back();
  statement.line = token_.line;
  statement.column = token_.column;
  statement.begin = token_.begin;
  // A label is entered first: parse_label reads the empty statements behind it.
  block.statements.push_back(&statement);
  using Parse = void (LuaParser::*)(Statement&);
  static constexpr std::pair<TokenKind, Parse> kinds[] = {
      {TokenKind::If, &LuaParser::parse_if},         {TokenKind::While, &LuaParser::parse_while},
      {TokenKind::Do, &LuaParser::parse_do},         {TokenKind::For, &LuaParser::parse_for},
      {TokenKind::Repeat, &LuaParser::parse_repeat}, {TokenKind::Function, &LuaParser::parse_function_statement},
      {TokenKind::Local, &LuaParser::parse_local},   {TokenKind::Return, &LuaParser::parse_return},
      {TokenKind::Break, &LuaParser::parse_goto},    {TokenKind::Goto, &LuaParser::parse_goto}};
  const auto* const found =
      std::find_if(std::begin(kinds), std::end(kinds), [&](const auto& kind) { return at(kind.first); });
  if (found != std::end(kinds))
    (this->*found->second)(statement);
  else if (at(TokenKind::DoubleColon))
    parse_label(block, statement);
  else
    parse_expression_statement(statement);
  finish(statement);
}

void LuaParser::parse_do(Statement& statement) {
  statement.kind = StatementKind::Do;
  advance();
  statement.blocks.push_back(parse_block());
  expect_closing(TokenKind::End, TokenKind::Do, statement.line);
}

void LuaParser::parse_if(Statement& statement) {
  statement.kind = StatementKind::If;
  do {
    bound(statement.values.size(), bounds::kArms, "`elseif` in one `if`");
    advance();
    statement.values.push_back(parse_expression());
    statement.then_begins.push_back(token_.begin);
    expect(TokenKind::Then);
    statement.blocks.push_back(parse_block());
  } while (at(TokenKind::Elseif));
  if (at(TokenKind::Else)) {
    statement.else_begin = token_.begin;
    advance();
    statement.blocks.push_back(parse_block());
  }
  expect_closing(TokenKind::End, TokenKind::If, statement.line);
}

void LuaParser::parse_while(Statement& statement) {
  statement.kind = StatementKind::While;
  advance();
  statement.values.push_back(parse_expression());
  scopes_.open_block(true);
  expect(TokenKind::Do);
  statement.blocks.push_back(parse_block());
  expect_closing(TokenKind::End, TokenKind::While, statement.line);
  scopes_.close_block();
}

void LuaParser::parse_for(Statement& statement) {
  scopes_.open_block(true);
  advance();
  const std::string name = expect_name();
  if (at('=')) {
    statement.kind = StatementKind::NumericFor;
    scopes_.add_hidden(3);
    statement.variables.push_back(new_variable(name));
    parse_numeric_for(statement);
  } else if (at(',') || at(TokenKind::In)) {
    statement.kind = StatementKind::GenericFor;
    scopes_.add_hidden(4);
    parse_generic_for(statement, name);
  } else {
    fail("'=' or 'in' expected");
  }
  expect(TokenKind::Do);
  scopes_.open_block(false);
  for (Variable* const variable : statement.variables) scopes_.declare(variable);
  statement.blocks.push_back(parse_statements());
  scopes_.close_block();
  expect_closing(TokenKind::End, TokenKind::For, statement.line);
  scopes_.close_block();
}

void LuaParser::parse_numeric_for(Statement& statement) {
  advance();
  statement.values.push_back(parse_expression());
  expect(',');
  statement.values.push_back(parse_expression());
  if (accept(',')) statement.values.push_back(parse_expression());
}

void LuaParser::parse_generic_for(Statement& statement, const std::string& first_name) {
  statement.variables.push_back(new_variable(first_name));
  while (accept(',')) {
    const std::string name = expect_name();
    statement.variables.push_back(new_variable(name, statement.variables.size()));
  }
  expect(TokenKind::In);
  statement.values = parse_expressions();
}

void LuaParser::parse_repeat(Statement& statement) {
  statement.kind = StatementKind::Repeat;
  advance();
  scopes_.open_block(true);
  scopes_.open_block(false);  // stays open for the condition, which sees the block's locals
  statement.blocks.push_back(parse_statements());
  expect_closing(TokenKind::Until, TokenKind::Repeat, statement.line);
  statement.values.push_back(parse_expression());
  scopes_.close_block();
  scopes_.close_block();
}

void LuaParser::parse_function_statement(Statement& statement) {
  statement.kind = StatementKind::Function;
  const size_t keyword_begin = token_.begin;
  advance();
  Expression* target = parse_name();
  for (size_t length = 1; at('.'); length++) {
    bound(length, bounds::kChain, "fields and calls in one chain");
    target = parse_field(target);
  }
  if (at(':')) {
    statement.method_colon = token_.begin;
    target = parse_field(target);
  }
  statement.targets.push_back(target);
  statement.function = parse_function_body(statement.line, keyword_begin, statement.method_colon != 0);
  check_not_constant(*target);
}

void LuaParser::parse_local(Statement& statement) {
  advance();
  if (!accept(TokenKind::Function)) {
    parse_local_variables(statement);
    return;
  }
  statement.kind = StatementKind::LocalFunction;
  Variable* const variable = new_variable(expect_name());
  statement.variables.push_back(variable);
  scopes_.declare(variable);  // visible in its own body: recursion
  statement.function = parse_function_body(lexer_.line(), statement.begin, false);
}

void LuaParser::parse_attribute(Variable& variable) {
  if (!accept('<')) return;
  variable.attribute_begin = token_.begin;
  const std::string name = expect_name();
  expect('>');
  if (name != "const" && name != "close") fail_meaning("unknown attribute '" + name + "'");
  variable.attribute = name == "const" ? Variable::Attribute::Const : Variable::Attribute::Close;
}

void LuaParser::parse_local_variables(Statement& statement) {
  statement.kind = StatementKind::Local;
  bool has_close = false;
  do {
    const std::string name = expect_name();
    Variable* const variable = new_variable(name, statement.variables.size());
    parse_attribute(*variable);
    if (variable->attribute == Variable::Attribute::Close) {
      if (has_close) fail_meaning("multiple to-be-closed variables in local list");
      has_close = true;
    }
    statement.variables.push_back(variable);
  } while (accept(','));
  if (accept('=')) statement.values = parse_expressions();
  const auto& values = statement.values;
  for (size_t i = 0; i < statement.variables.size(); i++) {
    Variable* const variable = statement.variables[i];
    if (i < values.size() && !has_many_values(*values[i])) variable->initial = values[i];
    const bool last = i + 1 == values.size() && i + 1 == statement.variables.size();
    variable->compile_time_constant =
        last && variable->attribute == Variable::Attribute::Const && is_literal(*values[i]);
    scopes_.declare(variable);
  }
}

void LuaParser::parse_label(Block& block, Statement& statement) {
  statement.kind = StatementKind::Label;
  advance();
  statement.label = expect_name();
  expect(TokenKind::DoubleColon);
  finish(statement);
  while (at(';') || at(TokenKind::DoubleColon)) parse_statement(block);
  bound(scopes_.jump_count() + 1, bounds::kJumps, "labels, `goto` and `break` in one function");
  scopes_.add_label(statement.label, statement.line, at_block_end(false));
}

void LuaParser::parse_return(Statement& statement) {
  statement.kind = StatementKind::Return;
  advance();
  if (!at_block_end(true) && !at(';')) statement.values = parse_expressions();
  accept(';');
}

void LuaParser::parse_goto(Statement& statement) {
  statement.kind = at(TokenKind::Break) ? StatementKind::Break : StatementKind::Goto;
  advance();
  const int line = statement.kind == StatementKind::Break ? statement.line : lexer_.line();
  statement.label = statement.kind == StatementKind::Break ? "break" : expect_name();
  bound(scopes_.jump_count() + 1, bounds::kJumps, "labels, `goto` and `break` in one function");
  scopes_.add_goto(statement.label, line);
}

void LuaParser::parse_expression_statement(Statement& statement) {
  Expression* const first = parse_suffixed();
  if (!at('=') && !at(',')) {
    if (first->kind != ExpressionKind::Call && first->kind != ExpressionKind::MethodCall) fail("syntax error");
    statement.kind = StatementKind::Call;
    statement.values.push_back(first);
    return;
  }
  statement.kind = StatementKind::Assign;
  statement.targets.push_back(first);
  check_assignable(*first);
  // Lua's parser recurses on the targets and so limits them; the levels are given back when the statement ends.
  std::deque<NestingLevel> levels;
  while (accept(',')) {
    levels.emplace_back(*this);
    statement.targets.push_back(parse_suffixed());
    check_assignable(*statement.targets.back());
  }
  expect('=');
  statement.values = parse_expressions();
}

void LuaParser::check_assignable(const Expression& target) {
  if (target.kind != ExpressionKind::Name && target.kind != ExpressionKind::Index) fail("syntax error");
  check_not_constant(target);
}

void LuaParser::check_not_constant(const Expression& target) {
  const bool by_name =
      target.kind == ExpressionKind::Name ? !target.variable : target.right->kind == ExpressionKind::String;
  const std::string& field = target.kind == ExpressionKind::Name ? target.text : target.right->text;
  if (options_.policy && by_name && (field == "__mode" || field == "__call"))
    fail_meaning("a policy may not assign to '" + field + "'; give it in the table of setmetatable(t, {...})");
  if (target.kind != ExpressionKind::Name) return;
  if (target.variable && target.variable->attribute != Variable::Attribute::Regular)
    fail_meaning("attempt to assign to const variable '" + target.text + "'");
  if (options_.policy && target.text == "_ENV")
    fail_meaning("a policy may not assign to '_ENV': its environment is fixed; keep values in locals or tables");
}

/// `pending`: variables of the same declaration that are not visible yet.
Variable* LuaParser::new_variable(const std::string& name, size_t pending) {
  if (options_.policy && name == "_ENV")
    fail_meaning("a policy may not declare a variable named '_ENV': its environment is fixed; choose another name");
  if (scopes_.local_count() + static_cast<int>(pending) + 1 > kMaxLocals) {
    const int line = scopes_.function()->line;
    fail("too many local variables (limit is " + std::to_string(kMaxLocals) + ") in " +
         (line == 0 ? "main function" : "function at line " + std::to_string(line)));
  }
  Variable& variable = chunk_->variables.emplace_back();
  variable.name = name;
  variable.declared = previous_end_;
  variable.owner = scopes_.function();
  return &variable;
}

Function* LuaParser::parse_function_body(int line, size_t keyword_begin, bool is_method) {
  Function& function = chunk_->functions.emplace_back();
  bound(chunk_->functions.size(), bounds::kFunctions, "functions");
  function.id = static_cast<int>(chunk_->functions.size()) - 1;
  function.parent = scopes_.function();
  function.line = line;
  function.keyword_begin = keyword_begin;
  function.is_method = is_method;
  scopes_.open_function(&function);
  expect('(');
  function.parameters_begin = previous_end_;
  if (is_method) function.parameters.push_back(new_variable("self"));
  if (!at(')')) parse_parameters(function);
  for (Variable* const parameter : function.parameters) scopes_.declare(parameter);
  expect(')');
  function.body = parse_statements();
  expect_closing(TokenKind::End, TokenKind::Function, line);
  scopes_.close_function();
  return &function;
}

void LuaParser::parse_parameters(Function& function) {
  function.has_parameters = true;
  do {
    if (at(TokenKind::Name)) {
      const std::string name = expect_name();
      function.parameters.push_back(new_variable(name, function.parameters.size()));
    } else if (accept(TokenKind::Dots)) {
      function.is_vararg = true;
    } else {
      fail("<name> or '...' expected");
    }
  } while (!function.is_vararg && accept(','));
}

}  // namespace triage::lua::rewriter
