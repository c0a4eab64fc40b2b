#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/lua/rewriter/syntax/lexer.h"
#include "bindings/lua/rewriter/syntax/work.h"

namespace triage::lua::rewriter {

/// The tokens of a chunk, one after the other, and the errors for those that are not expected.
class TokenStream {
 protected:
  TokenStream(std::string_view source, std::string_view chunk_name, const ParseOptions& options)
      : options_(options), work_(options.charge), lexer_(source, chunk_name) {}
  /// Refuses a policy with more than `most` of something (bounds.h).
  void bound(size_t count, size_t most, const char* what);

  void advance();
  const Token& peek();
  bool at(TokenKind kind) const { return token_.is(kind); }
  bool at(char character) const { return token_.is(character); }
  template <class Kind>
  bool accept(Kind wanted) {
    if (!at(wanted)) return false;
    advance();
    return true;
  }
  void expect(TokenKind kind);
  void expect(char character);
  void expect_closing(TokenKind kind, TokenKind opening, int line);
  void expect_closing(char closing, char opening, int line);
  std::string expect_name();
  [[noreturn]] void fail(const std::string& message);  // with "near ...", and a hint where one is known
  [[noreturn]] void fail(const std::string& message, const std::string& hint);
  [[noreturn]] void fail_meaning(const std::string& message);  // without
  [[noreturn]] void fail_expected(const std::string& what);

  const ParseOptions options_;
  Work work_;
  Lexer lexer_;
  Token token_;
  size_t previous_end_ = 0;
  int previous_line_ = 1;

 private:
  std::string misplaced_end() const;
  [[noreturn]] void fail_unclosed(const std::string& closing, const std::string& opening, int line);

  std::optional<Token> ahead_;
  size_t tokens_ = 0;
  struct ClosedBlock {
    TokenKind opening;
    int line, end_line;
    size_t end;  // offset of its `end`
  };
  std::vector<ClosedBlock> closed_blocks_;
};

}  // namespace triage::lua::rewriter
