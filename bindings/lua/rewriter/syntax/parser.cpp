#include "bindings/lua/rewriter/syntax/parser.h"

#include <algorithm>

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

std::unique_ptr<Chunk> parse(std::string_view source, std::string_view chunk_name, const Options& options) {
  return Parser(source, chunk_name, options).parse_chunk();
}

Parser::Parser(std::string_view source, std::string_view chunk_name, const Options& options)
    : options_(options),
      work_(options.charge),
      lexer_(source, chunk_name),
      chunk_(std::make_unique<Chunk>()),
      scopes_([this](const std::string& message) { fail_meaning(message); }, work_) {}

std::unique_ptr<Chunk> Parser::parse_chunk() {
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

void Parser::bound(size_t count, size_t most, const char* what) {
  if (!options_.policy || count <= most) return;
  fail_meaning("a policy may have at most " + std::to_string(most) + " " + what +
               ": make it shorter, or split it; a trusted script (triage exec) has no such limit");
}

// --- tokens

void Parser::advance() {
  work_.step(1 + (token_.end - token_.begin) / 100);
  bound(++tokens_, bounds::kTokens, "tokens");
  previous_end_ = token_.end;
  previous_line_ = token_.end_line;
  if (ahead_) {
    token_ = std::move(*ahead_);
    ahead_.reset();
  } else {
    token_ = lexer_.next();
  }
}

const Token& Parser::peek() {
  if (!ahead_) ahead_ = lexer_.next();
  return *ahead_;
}

bool Parser::accept(TokenKind kind) {
  if (!at(kind)) return false;
  advance();
  return true;
}

bool Parser::accept(char character) {
  if (!at(character)) return false;
  advance();
  return true;
}

void Parser::expect(TokenKind kind) {
  if (!at(kind)) fail_expected(show_token(kind));
  if (kind != TokenKind::EndOfFile) advance();
}

void Parser::expect(char character) {
  if (!accept(character)) fail_expected(show_token(TokenKind::Character, character));
}

/// Where blocks were closed by an `end` that stands further left than the line that opened them, the first of them is the one
/// that lacks its own: Lua itself names the outermost. Empty where none is.
std::string Parser::misplaced_end() const {
  const std::string_view source = lexer_.source();
  std::vector<size_t> lines = {0, 0};  // where each begins; the first has number 1
  for (size_t i = 0; i < source.size(); ++i)
    if (source[i] == '\n') lines.push_back(i + 1);
  const auto indentation = [&](int line) {
    const size_t begin = lines.at(static_cast<size_t>(line));
    constexpr size_t most = 200;  // one line may open many blocks
    const std::string_view start = source.substr(begin, most);
    return start.substr(0, start.find_first_not_of(" \t"));
  };
  for (const ClosedBlock& block : closed_blocks_) {
    if (static_cast<size_t>(block.end_line) >= lines.size()) return "";  // lines that end in another way
    const std::string_view outer = indentation(block.end_line), inner = indentation(block.line);
    const bool first_on_line = lines[static_cast<size_t>(block.end_line)] + outer.size() == block.end;
    if (first_on_line && outer.size() < inner.size() && inner.substr(0, outer.size()) == outer)
      return "; " + show_token(block.opening) + " at line " + std::to_string(block.line) +
             " seems to have no `end`: it took the one of line " + std::to_string(block.end_line) +
             ", which is indented less";
  }
  return "";
}

/// The `end` of a `while`, ...: says which opening it lacks, unless that is on this very line.
void Parser::fail_unclosed(const std::string& closing, const std::string& opening, int line) {
  if (line == lexer_.line()) fail_expected(closing);
  const std::string misplaced = closing == show_token(TokenKind::End) ? misplaced_end() : "";
  fail(closing + " expected (to close " + opening + " at line " + std::to_string(line) + misplaced + ")");
}

void Parser::expect_closing(TokenKind kind, TokenKind opening, int line) {
  if (!at(kind)) fail_unclosed(show_token(kind), show_token(opening), line);
  if (kind == TokenKind::End) closed_blocks_.push_back({opening, line, token_.line, token_.begin});
  advance();
}

void Parser::expect_closing(char closing, char opening, int line) {
  if (accept(closing)) return;
  fail_unclosed(show_token(TokenKind::Character, closing), show_token(TokenKind::Character, opening), line);
}

std::string Parser::expect_name() {
  if (!at(TokenKind::Name)) fail_expected(show_token(TokenKind::Name));
  if (token_.text.compare(0, 9, "__triage_") == 0)
    fail("a name that starts with '__triage_' is reserved for the runtime: choose another name");
  bound(token_.text.size(), bounds::kName, "bytes in a name");
  std::string name = std::move(token_.text);
  advance();
  return name;
}

void Parser::fail(const std::string& message) { lexer_.fail(message, lexer_.near(token_), token_.column); }
void Parser::fail_meaning(const std::string& message) { lexer_.fail(message, "", token_.column); }
void Parser::fail_expected(const std::string& what) { fail(what + " expected"); }

// --- blocks and statements

bool Parser::at_block_end(bool with_until) const {
  switch (token_.kind) {
    case TokenKind::Else:
    case TokenKind::Elseif:
    case TokenKind::End:
    case TokenKind::EndOfFile:
      return true;
    case TokenKind::Until:
      return with_until;
    default:
      return false;
  }
}

Block* Parser::parse_statements() {
  Block* const block = &chunk_->blocks.emplace_back();
  while (!at_block_end(true)) {
    const bool last = at(TokenKind::Return);
    parse_statement(*block);
    if (last) break;
  }
  return block;
}

Block* Parser::parse_block(bool is_loop) {
  scopes_.open_block(is_loop);
  Block* const block = parse_statements();
  scopes_.close_block();
  return block;
}

void Parser::finish(Statement& statement) {
  statement.end = previous_end_;
  statement.end_line = previous_line_;
}

void Parser::parse_statement(Block& block) {
  const Level level(*this);
  if (accept(';')) return;
  Statement& statement = chunk_->statements.emplace_back();
  statement.line = token_.line;
  statement.column = token_.column;
  statement.begin = token_.begin;
  // A label is entered first: parse_label reads the empty statements behind it.
  block.statements.push_back(&statement);
  switch (token_.kind) {
    case TokenKind::If:
      parse_if(statement);
      break;
    case TokenKind::While:
      parse_while(statement);
      break;
    case TokenKind::Do: {
      advance();
      statement.kind = StatementKind::Do;
      statement.blocks.push_back(parse_block());
      expect_closing(TokenKind::End, TokenKind::Do, statement.line);
      break;
    }
    case TokenKind::For:
      parse_for(statement);
      break;
    case TokenKind::Repeat:
      parse_repeat(statement);
      break;
    case TokenKind::Function:
      parse_function_statement(statement);
      break;
    case TokenKind::Local:
      parse_local(statement);
      break;
    case TokenKind::DoubleColon:
      parse_label(block, statement);
      break;
    case TokenKind::Return:
      parse_return(statement);
      break;
    case TokenKind::Break:
    case TokenKind::Goto:
      parse_goto(statement);
      break;
    default:
      parse_expression_statement(statement);
      break;
  }
  finish(statement);
}

void Parser::parse_if(Statement& statement) {
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

void Parser::parse_while(Statement& statement) {
  statement.kind = StatementKind::While;
  advance();
  statement.values.push_back(parse_expression());
  scopes_.open_block(true);
  expect(TokenKind::Do);
  statement.blocks.push_back(parse_block());
  expect_closing(TokenKind::End, TokenKind::While, statement.line);
  scopes_.close_block();
}

void Parser::parse_for(Statement& statement) {
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

void Parser::parse_numeric_for(Statement& statement) {
  advance();
  statement.values.push_back(parse_expression());
  expect(',');
  statement.values.push_back(parse_expression());
  if (accept(',')) statement.values.push_back(parse_expression());
}

void Parser::parse_generic_for(Statement& statement, const std::string& first_name) {
  statement.variables.push_back(new_variable(first_name));
  while (accept(',')) {
    const std::string name = expect_name();
    statement.variables.push_back(new_variable(name, statement.variables.size()));
  }
  expect(TokenKind::In);
  statement.values = parse_expressions();
}

void Parser::parse_repeat(Statement& statement) {
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

void Parser::parse_function_statement(Statement& statement) {
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

void Parser::parse_local(Statement& statement) {
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

void Parser::parse_attribute(Variable& variable) {
  if (!accept('<')) return;
  variable.attribute_begin = token_.begin;
  const std::string name = expect_name();
  expect('>');
  if (name != "const" && name != "close") fail_meaning("unknown attribute '" + name + "'");
  variable.attribute = name == "const" ? Variable::Attribute::Const : Variable::Attribute::Close;
}

void Parser::parse_local_variables(Statement& statement) {
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

void Parser::parse_label(Block& block, Statement& statement) {
  statement.kind = StatementKind::Label;
  advance();
  statement.label = expect_name();
  expect(TokenKind::DoubleColon);
  finish(statement);
  while (at(';') || at(TokenKind::DoubleColon)) parse_statement(block);
  bound(scopes_.jump_count() + 1, bounds::kJumps, "labels, `goto` and `break` in one function");
  scopes_.add_label(statement.label, statement.line, at_block_end(false));
}

void Parser::parse_return(Statement& statement) {
  statement.kind = StatementKind::Return;
  advance();
  if (!at_block_end(true) && !at(';')) statement.values = parse_expressions();
  accept(';');
}

void Parser::parse_goto(Statement& statement) {
  statement.kind = at(TokenKind::Break) ? StatementKind::Break : StatementKind::Goto;
  advance();
  const int line = statement.kind == StatementKind::Break ? statement.line : lexer_.line();
  statement.label = statement.kind == StatementKind::Break ? "break" : expect_name();
  bound(scopes_.jump_count() + 1, bounds::kJumps, "labels, `goto` and `break` in one function");
  scopes_.add_goto(statement.label, line);
}

void Parser::parse_expression_statement(Statement& statement) {
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
  std::deque<Level> levels;
  while (accept(',')) {
    levels.emplace_back(*this);
    statement.targets.push_back(parse_suffixed());
    check_assignable(*statement.targets.back());
  }
  expect('=');
  statement.values = parse_expressions();
}

void Parser::check_assignable(const Expression& target) {
  if (target.kind != ExpressionKind::Name && target.kind != ExpressionKind::Index) fail("syntax error");
  check_not_constant(target);
}

void Parser::check_not_constant(const Expression& target) {
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
Variable* Parser::new_variable(const std::string& name, size_t pending) {
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

Function* Parser::parse_function_body(int line, size_t keyword_begin, bool is_method) {
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

void Parser::parse_parameters(Function& function) {
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
