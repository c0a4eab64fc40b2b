#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "bindings/lua/rewriter/syntax/lexer.h"
#include "bindings/lua/rewriter/syntax/scope.h"
#include "bindings/lua/rewriter/syntax/syntax_tree.h"
#include "bindings/lua/rewriter/syntax/work.h"

namespace triage::lua::rewriter {

/// Parses a chunk of Lua 5.4. Throws SyntaxError with Lua's own words, for all that Lua's compiler refuses but its
/// limits on registers and upvalues; also for names that start with `__triage_`, and where `options.policy` for
/// variables named `_ENV`.
std::unique_ptr<Chunk> parse(std::string_view source, std::string_view chunk_name, const Options& options);

class Parser {
 public:
  Parser(std::string_view source, std::string_view chunk_name, const Options& options);
  std::unique_ptr<Chunk> parse_chunk();

 private:
  // As Lua's LUAI_MAXCCALLS: the parser recurses on the C++ stack, and so will Lua's on the rewritten text.
  static constexpr int kMaxLevels = 200;

  /// One level of nesting; a chunk with too many is an error, not a crash.
  class Level {
   public:
    explicit Level(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMaxLevels)
        parser_.fail("C stack overflow: the chunk has too many syntax levels (more than " + std::to_string(kMaxLevels) +
                     ")");
    }
    ~Level() { parser_.depth_--; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Parser& parser_;
  };

  /// Refuses a policy with more than `most` of something (bounds.h).
  void bound(size_t count, size_t most, const char* what);

  // tokens
  void advance();
  const Token& peek();
  bool at(TokenKind kind) const { return token_.is(kind); }
  bool at(char character) const { return token_.is(character); }
  bool accept(TokenKind kind);
  bool accept(char character);
  void expect(TokenKind kind);
  void expect(char character);
  void expect_closing(TokenKind kind, TokenKind opening, int line);
  void expect_closing(char closing, char opening, int line);
  std::string expect_name();
  std::string misplaced_end() const;
  [[noreturn]] void fail_unclosed(const std::string& closing, const std::string& opening, int line);
  [[noreturn]] void fail(const std::string& message);          // with "near ..."
  [[noreturn]] void fail_meaning(const std::string& message);  // without
  [[noreturn]] void fail_expected(const std::string& what);

  // blocks and statements
  bool at_block_end(bool with_until) const;
  Block* parse_statements();
  Block* parse_block(bool is_loop = false);
  void parse_statement(Block& block);
  void finish(Statement& statement);
  void parse_if(Statement& statement);
  void parse_while(Statement& statement);
  void parse_for(Statement& statement);
  void parse_numeric_for(Statement& statement);
  void parse_generic_for(Statement& statement, const std::string& first_name);
  void parse_repeat(Statement& statement);
  void parse_function_statement(Statement& statement);
  void parse_local(Statement& statement);
  void parse_local_variables(Statement& statement);
  void parse_label(Block& block, Statement& statement);
  void parse_return(Statement& statement);
  void parse_goto(Statement& statement);
  void parse_expression_statement(Statement& statement);
  void check_assignable(const Expression& target);
  void check_not_constant(const Expression& target);
  Variable* new_variable(const std::string& name, size_t pending = 0);
  void parse_attribute(Variable& variable);

  // expressions
  Expression* new_expression(ExpressionKind kind);
  Expression* finish(Expression* expression);
  Expression* parse_expression(int limit = 0);
  std::vector<Expression*> parse_expressions();
  Expression* parse_simple();
  Expression* parse_unary();
  Expression* parse_primary();
  Expression* parse_suffixed();
  Expression* parse_name();
  Expression* parse_field(Expression* object);
  Expression* parse_call(Expression* callee);
  Expression* parse_table();
  void parse_table_field(Expression& table);
  Function* parse_function_body(int line, size_t keyword_begin, bool is_method);
  void parse_parameters(Function& function);

  Options options_;
  Work work_;
  Lexer lexer_;
  std::unique_ptr<Chunk> chunk_;
  Scopes scopes_;
  Token token_;
  std::optional<Token> ahead_;
  size_t previous_end_ = 0;
  int previous_line_ = 1;
  int depth_ = 0;
  size_t tokens_ = 0;
  struct ClosedBlock {
    TokenKind opening;
    int line, end_line;
    size_t end;  // offset of its `end`
  };
  std::vector<ClosedBlock> closed_blocks_;
};

}  // namespace triage::lua::rewriter
