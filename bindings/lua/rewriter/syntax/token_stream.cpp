#include "bindings/lua/rewriter/syntax/token_stream.h"

#include "bindings/lua/rewriter/habits/habits.h"
#include "bindings/lua/rewriter/syntax/bounds.h"

namespace triage::lua::rewriter {

void TokenStream::bound(size_t count, size_t most, const char* what) {
  if (!options_.policy || count <= most) return;
  fail_meaning("a policy may have at most " + std::to_string(most) + " " + what +
               ": make it shorter, or split it; a trusted script (triage exec) has no such limit");
}

void TokenStream::advance() {
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

const Token& TokenStream::peek() {
  if (!ahead_) ahead_ = lexer_.next();
  return *ahead_;
}

void TokenStream::expect(TokenKind kind) {
  if (!at(kind)) fail_expected(show_token(kind));
  if (kind != TokenKind::EndOfFile) advance();
}

void TokenStream::expect(char character) {
  if (!accept(character)) fail_expected(show_token(TokenKind::Character, character));
}

/// Where blocks were closed by an `end` that stands further left than the line that opened them, the first of them is
/// the one that lacks its own: Lua itself names the outermost. Empty where none is.
std::string TokenStream::misplaced_end() const {
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
void TokenStream::fail_unclosed(const std::string& closing, const std::string& opening, int line) {
  if (line == lexer_.line()) fail_expected(closing);
  std::string misplaced;
  if (closing == show_token(TokenKind::End)) misplaced = misplaced_end() + hint_of_missing_end(lexer_.source());
  fail(closing + " expected (to close " + opening + " at line " + std::to_string(line) + misplaced + ")");
}

void TokenStream::expect_closing(TokenKind kind, TokenKind opening, int line) {
  if (!at(kind)) fail_unclosed(show_token(kind), show_token(opening), line);
  if (kind == TokenKind::End) closed_blocks_.push_back({opening, line, token_.line, token_.begin});
  advance();
}

void TokenStream::expect_closing(char closing, char opening, int line) {
  if (accept(closing)) return;
  if (opening == '{' && at(TokenKind::Name) && hint_of_text(lexer_.source(), token_.begin).text.empty())
    fail("'}' expected (to close '{' at line " + std::to_string(line) + ")", "a comma separates the items of a table");
  fail_unclosed(show_token(TokenKind::Character, closing), show_token(TokenKind::Character, opening), line);
}

std::string TokenStream::expect_name() {
  if (!at(TokenKind::Name)) fail_expected(show_token(TokenKind::Name));
  if (token_.text.compare(0, 9, "__triage_") == 0)
    fail("a name that starts with '__triage_' is reserved for the runtime: choose another name");
  bound(token_.text.size(), bounds::kName, "bytes in a name");
  std::string name = std::move(token_.text);
  advance();
  return name;
}

void TokenStream::fail(const std::string& message) {
  const Hint hint = hint_of_text(lexer_.source(), token_.begin);
  if (!hint.text.empty() && lexer_.is_above(hint.begin) && token_.line == lexer_.line())
    lexer_.fail_above(hint.text, hint.begin);
  const std::string near = hint.instead.empty() ? lexer_.near(token_) : hint.instead;
  lexer_.fail(hint.text.empty() ? message : message + " (" + hint.text + ")", near, token_.column);
}

void TokenStream::fail(const std::string& message, const std::string& hint) {
  lexer_.fail(message + " (" + hint + ")", lexer_.near(token_), token_.column);
}

void TokenStream::fail_meaning(const std::string& message) { lexer_.fail(message, "", token_.column); }
void TokenStream::fail_expected(const std::string& what) { fail(what + " expected"); }

}  // namespace triage::lua::rewriter
