#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "bindings/lua/rewriter/rewriter.h"

/// Tokens of Lua 5.4. The lexer reads on demand, so that of two errors in a text the first one is reported, as Lua
/// does.
namespace triage::lua::rewriter {

enum class TokenKind : uint8_t {
  // reserved words
  And,
  Break,
  Do,
  Else,
  Elseif,
  End,
  False,
  For,
  Function,
  Goto,
  If,
  In,
  Local,
  Nil,
  Not,
  Or,
  Repeat,
  Return,
  Then,
  True,
  Until,
  While,
  // operators of more than one character
  FloorDivide,
  Concat,
  Dots,
  Equal,
  GreaterEqual,
  LessEqual,
  NotEqual,
  ShiftLeft,
  ShiftRight,
  DoubleColon,
  EndOfFile,
  Number,
  Integer,
  Name,
  String,
  Character,  // any other single character: Token::character
};

struct Token {
  TokenKind kind = TokenKind::EndOfFile;
  char character = 0;         // of Character
  int line = 1, column = 1;   // where it begins
  int end_line = 1;           // where it ends: long strings span lines
  size_t begin = 0, end = 0;  // byte range in the source
  std::string text;           // Name: the name; Number, Integer: as written; String: its value

  bool is(TokenKind wanted) const { return kind == wanted; }
  bool is(char wanted) const { return kind == TokenKind::Character && character == wanted; }
};

/// A token kind, or a single character, as Lua's messages show it: `'end'`, `<eof>`, `<name>`, `'='`.
std::string show_token(TokenKind kind, char character = 0);

class Lexer {
 public:
  /// Skips a byte order mark and a first line that starts with `#!` (of a file, "@name": with `#`), as Lua does for
  /// files.
  Lexer(std::string_view source, std::string_view chunk_name);

  /// Reads the next token. Throws SyntaxError.
  Token next();

  /// Where the source proper begins: behind the byte order mark and the first `#` line.
  size_t start() const { return start_; }
  std::string_view source() const { return source_; }
  /// Of the last token read, or of the error: what Lua calls the current line.
  int line() const { return line_; }

  /// Throws SyntaxError `chunk:line: message`, with ` near ...` where `near` is not empty.
  [[noreturn]] void fail(const std::string& message, const std::string& near, int column) const;
  /// The same for a mistake that begins at a byte of a line above the current one.
  [[noreturn]] void fail_above(const std::string& message, size_t begin) const;
  bool is_above(size_t byte) const { return byte < line_start_; }
  /// How `token` is shown behind "near".
  std::string near(const Token& token) const;

 private:
  static constexpr int kEnd = -1;
  int current() const { return position_ < source_.size() ? static_cast<unsigned char>(source_[position_]) : kEnd; }
  int peek() const {
    return position_ + 1 < source_.size() ? static_cast<unsigned char>(source_[position_ + 1]) : kEnd;
  }
  bool at_newline() const { return current() == '\n' || current() == '\r'; }
  bool accept(char wanted);
  void keep() { buffer_ += source_[position_++]; }
  void newline();
  int column_of(size_t offset) const { return static_cast<int>(offset - line_start_) + 1; }
  [[noreturn]] void fail_here(const std::string& message, const std::string& near) const;
  [[noreturn]] void fail_in_string(const std::string& message);

  void skip_space_and_comments();
  void skip_comment();
  TokenKind read_symbol();
  TokenKind read_name();
  TokenKind read_number();
  TokenKind read_string();
  void read_escape();
  void read_byte_escape(int digits_base);
  void read_utf8_escape();
  int read_hex_digit();
  size_t long_bracket_level();
  void read_long_bracket(size_t level, bool is_comment);

  std::string_view source_;
  std::string chunk_;
  size_t position_ = 0, start_ = 0, line_start_ = 0;
  int line_ = 1;
  std::string buffer_;  // text of the token being read, as Lua's messages show it
  std::string value_;   // value of the string being read
};

}  // namespace triage::lua::rewriter
