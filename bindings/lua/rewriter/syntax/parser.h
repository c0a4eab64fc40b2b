#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "bindings/lua/rewriter/syntax/scope.h"
#include "bindings/lua/rewriter/syntax/syntax_tree.h"
#include "bindings/lua/rewriter/syntax/token_stream.h"

namespace triage::lua::rewriter {

/// Parses a chunk of Lua 5.4. Throws SyntaxError with Lua's own words, for all that Lua's compiler refuses but its
/// limits on registers and upvalues; also for names that start with `__triage_`, and where `options.policy` for
/// variables named `_ENV`.
std::unique_ptr<Chunk> parse(std::string_view source, std::string_view chunk_name, const ParseOptions& options);

class LuaParser : private TokenStream {
 public:
  LuaParser(std::string_view source, std::string_view chunk_name, const ParseOptions& options);
  std::unique_ptr<Chunk> parse_chunk();

 private:
  // As Lua's LUAI_MAXCCALLS: the parser recurses on the C++ stack, and so will Lua's on the rewritten text.
  static constexpr int kMaxLevels = 200;

  /// One level of nesting; a chunk with too many is an error, not a crash.
  class NestingLevel {
   public:
    explicit NestingLevel(LuaParser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMaxLevels)
        parser_.fail("C stack overflow: the chunk has too many syntax levels (more than " + std::to_string(kMaxLevels) +
                     ")");
    }
    ~NestingLevel() { parser_.depth_--; }
    NestingLevel(const NestingLevel&) = delete;
    NestingLevel& operator=(const NestingLevel&) = delete;

   private:
    LuaParser& parser_;
  };

  // blocks and statements
  bool at_block_end(bool with_until) const;
  Block* parse_statements();
  Block* parse_block(bool is_loop = false);
  void parse_statement(Block& block);
  void finish(Statement& statement);
  void parse_if(Statement& statement);
  void parse_while(Statement& statement);
  void parse_do(Statement& statement);
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

  std::unique_ptr<Chunk> chunk_;
  Scopes scopes_;
  int depth_ = 0;
};

}  // namespace triage::lua::rewriter
