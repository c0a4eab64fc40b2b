#include "bindings/lua/rewriter/syntax/lexer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "bindings/lua/rewriter/syntax/chunk_name.h"

namespace triage::lua::rewriter {
namespace {

// In the order of TokenKind.
constexpr std::array<std::string_view, 37> kShown = {
    "and",   "break", "do",    "else",     "elseif",    "end",    "false",   "for",    "function", "goto",
    "if",    "in",    "local", "nil",      "not",       "or",     "repeat",  "return", "then",     "true",
    "until", "while", "//",    "..",       "...",       "==",     ">=",      "<=",     "~=",       "<<",
    ">>",    "::",    "<eof>", "<number>", "<integer>", "<name>", "<string>"};
constexpr int kReservedWords = static_cast<int>(TokenKind::While) + 1;

// Lua's character classes are ASCII whatever the locale is.
bool is_digit(int c) { return c >= '0' && c <= '9'; }
bool is_hex(int c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool is_letter(int c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_space(int c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
int hex_value(int c) { return is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10; }

std::string quote(std::string_view text) { return "'" + std::string(text.substr(0, text.find('\0'))) + "'"; }

/// `digits [. digits] [exponent]` with at least one digit in the mantissa, decimal or hexadecimal.
bool is_numeral(std::string_view text, bool& is_integer) {
  const bool hex = text.size() > 1 && text[0] == '0' && (text[1] | 0x20) == 'x';
  size_t at = hex ? 2 : 0, digits = 0;
  const auto digit_run = [&](bool hex_digits) {
    const size_t first = at;
    while (at < text.size() && (hex_digits ? is_hex(text[at]) : is_digit(text[at]))) at++;
    return at - first;
  };
  digits = digit_run(hex);
  is_integer = true;
  if (at < text.size() && text[at] == '.') {
    at++;
    is_integer = false;
    digits += digit_run(hex);
  }
  if (digits == 0) return false;
  if (at < text.size() && (text[at] | 0x20) == (hex ? 'p' : 'e')) {
    at++;
    is_integer = false;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) at++;
    if (digit_run(false) == 0) return false;
  }
  return at == text.size();
}

void append_utf8(std::string& text, uint32_t code) {
  if (code < 0x80) {
    text += static_cast<char>(code);
    return;
  }
  // Lua encodes up to 2^31, in up to six bytes: continuation bytes from the end, then a first byte that tells how many.
  std::string bytes;
  uint32_t first_limit = 0x3f;
  do {
    bytes += static_cast<char>(0x80 | (code & 0x3f));
    code >>= 6;
    first_limit >>= 1;
  } while (code > first_limit);
  bytes += static_cast<char>((~first_limit << 1) | code);
  text.append(bytes.rbegin(), bytes.rend());
}

}  // namespace

std::string show_token(TokenKind kind, char character) {
  if (kind == TokenKind::Character) {
    if (character >= ' ' && character <= '~') return std::string("'") + character + "'";
    return "'<\\" + std::to_string(static_cast<unsigned char>(character)) + ">'";
  }
  const std::string_view shown = kShown[static_cast<size_t>(kind)];
  return kind < TokenKind::EndOfFile ? quote(shown) : std::string(shown);
}

Lexer::Lexer(std::string_view source, std::string_view chunk_name) : source_(source), chunk_(display_name(chunk_name)) {
  const bool is_file = !chunk_name.empty() && chunk_name[0] == '@';
  if (source_.substr(0, 3) == "\xEF\xBB\xBF") position_ = 3;
  const std::string_view rest = source_.substr(position_);
  if (rest.substr(0, 2) == "#!" || (is_file && rest.substr(0, 1) == "#"))
    while (current() != kEnd && current() != '\n') position_++;
  start_ = position_;
}

std::string Lexer::near(const Token& token) const {
  switch (token.kind) {
    case TokenKind::Name:
    case TokenKind::Number:
    case TokenKind::Integer:
      return quote(token.text);
    case TokenKind::String: {
      // Lua shows its buffer: the delimiters as written around the value.
      const std::string_view raw = source_.substr(token.begin, token.end - token.begin);
      const size_t width = raw[0] == '[' ? raw.find('[', 1) + 1 : 1;
      return quote(std::string(raw.substr(0, width)) + token.text + std::string(raw.substr(raw.size() - width)));
    }
    default:
      return show_token(token.kind, token.character);
  }
}

void Lexer::fail(const std::string& message, const std::string& near, int column) const {
  std::string text = chunk_ + ":" + std::to_string(line_) + ": " + message;
  if (!near.empty()) text += " near " + near;
  throw SyntaxError(text, line_, column);
}

void Lexer::fail_above(const std::string& message, size_t begin) const {
  const std::string_view above = source_.substr(0, begin);
  const auto below = std::count(source_.begin() + static_cast<std::ptrdiff_t>(begin),
                                source_.begin() + static_cast<std::ptrdiff_t>(line_start_), '\n');
  const int line = line_ - static_cast<int>(below);
  const size_t line_end = above.rfind('\n');
  const size_t before = line_end == std::string_view::npos ? 0 : line_end + 1;
  throw SyntaxError(chunk_ + ":" + std::to_string(line) + ": " + message, line, static_cast<int>(begin - before) + 1);
}

void Lexer::fail_here(const std::string& message, const std::string& near) const {
  fail(message, near, column_of(position_));
}

/// With the string as far as it was read, the offending character included.
void Lexer::fail_in_string(const std::string& message) {
  if (current() != kEnd) keep();
  fail_here(message, quote(buffer_));
}

bool Lexer::accept(char wanted) {
  if (current() != static_cast<unsigned char>(wanted)) return false;
  position_++;
  return true;
}

/// `\r\n` and `\n\r` are one line end.
void Lexer::newline() {
  const int first = current();
  position_++;
  if (at_newline() && current() != first) position_++;
  line_++;
  line_start_ = position_;
}

void Lexer::skip_space_and_comments() {
  while (true) {
    if (at_newline()) {
      newline();
    } else if (is_space(current())) {
      position_++;
    } else if (current() == '-' && peek() == '-') {
      position_ += 2;
      skip_comment();
    } else {
      return;
    }
  }
}

void Lexer::skip_comment() {
  if (current() == '[') {
    buffer_.clear();
    const size_t level = long_bracket_level();
    if (level >= 2) {
      read_long_bracket(level, true);
      return;
    }
  }
  while (current() != kEnd && !at_newline()) position_++;
}

Token Lexer::next() {
  skip_space_and_comments();
  buffer_.clear();
  value_.clear();
  Token token;
  token.line = line_;
  token.column = column_of(position_);
  token.begin = position_;
  const int first = current();
  if (first == kEnd) {
    token.kind = TokenKind::EndOfFile;
  } else if (is_letter(first)) {
    token.kind = read_name();
  } else if (is_digit(first) || (first == '.' && is_digit(peek()))) {
    token.kind = read_number();
  } else if (first == '"' || first == '\'') {
    token.kind = read_string();
  } else if (first == '[') {
    const size_t level = long_bracket_level();
    if (level == 0) fail_here("invalid long string delimiter", quote(buffer_));
    token.kind = level >= 2 ? TokenKind::String : TokenKind::Character;
    if (level >= 2) read_long_bracket(level, false);
  } else {
    token.kind = read_symbol();
  }
  token.character = token.kind == TokenKind::Character ? static_cast<char>(first) : '\0';
  token.text = token.kind == TokenKind::String ? value_ : buffer_;
  token.end = position_;
  token.end_line = line_;
  return token;
}

TokenKind Lexer::read_symbol() {
  const int first = current();
  position_++;
  switch (first) {
    case '=':
      return accept('=') ? TokenKind::Equal : TokenKind::Character;
    case '<':
      return accept('=') ? TokenKind::LessEqual : accept('<') ? TokenKind::ShiftLeft : TokenKind::Character;
    case '>':
      return accept('=') ? TokenKind::GreaterEqual : accept('>') ? TokenKind::ShiftRight : TokenKind::Character;
    case '/':
      return accept('/') ? TokenKind::FloorDivide : TokenKind::Character;
    case '~':
      return accept('=') ? TokenKind::NotEqual : TokenKind::Character;
    case ':':
      return accept(':') ? TokenKind::DoubleColon : TokenKind::Character;
    case '.':
      if (!accept('.')) return TokenKind::Character;
      return accept('.') ? TokenKind::Dots : TokenKind::Concat;
    default:
      return TokenKind::Character;
  }
}

TokenKind Lexer::read_name() {
  while (is_letter(current()) || is_digit(current())) keep();
  const auto* const end = kShown.begin() + kReservedWords;
  const auto* const word = std::find(kShown.begin(), end, buffer_);
  return word == end ? TokenKind::Name : static_cast<TokenKind>(word - kShown.begin());
}

TokenKind Lexer::read_number() {
  int exponent = 'e';
  const bool leading_zero = current() == '0';
  keep();
  if (leading_zero && (current() | 0x20) == 'x') {
    keep();
    exponent = 'p';
  }
  while (true) {
    if (current() != kEnd && (current() | 0x20) == exponent) {
      keep();
      if (current() == '+' || current() == '-') keep();
    } else if (is_hex(current()) || current() == '.') {
      keep();
    } else {
      break;
    }
  }
  if (is_letter(current())) keep();  // a numeral that touches a letter is malformed
  bool is_integer = false;
  const bool grouped = buffer_.find_first_not_of("0123456789_") == std::string::npos;  // as in Python
  if (!is_numeral(buffer_, is_integer))
    fail_here(grouped ? "malformed number; Lua has no _ in numbers" : "malformed number", quote(buffer_));
  return is_integer ? TokenKind::Integer : TokenKind::Number;
}

TokenKind Lexer::read_string() {
  const int delimiter = current();
  keep();
  while (current() != delimiter) {
    if (current() == kEnd) fail_here("unfinished string", show_token(TokenKind::EndOfFile));
    if (at_newline()) fail_here("unfinished string", quote(buffer_));
    if (current() == '\\') {
      read_escape();
    } else {
      value_ += source_[position_];
      keep();
    }
  }
  position_++;
  return TokenKind::String;
}

/// On a backslash. The buffer follows Lua's: value so far, and of an escape under way the text as written.
void Lexer::read_escape() {
  static constexpr std::string_view letters = "abfnrtv\\\"'", values = "\a\b\f\n\r\t\v\\\"'";
  const size_t buffer_size = buffer_.size(), value_size = value_.size();
  keep();
  if (current() == kEnd) return;  // the caller's next turn reports the unfinished string
  if (const size_t letter = letters.find(static_cast<char>(current())); letter != std::string_view::npos) {
    position_++;
    value_ += values[letter];
  } else if (current() == 'x') {
    read_byte_escape(16);
  } else if (current() == 'u') {
    read_utf8_escape();
  } else if (at_newline()) {
    newline();
    value_ += '\n';
  } else if (current() == 'z') {
    position_++;
    while (is_space(current())) at_newline() ? newline() : static_cast<void>(position_++);
  } else {
    if (!is_digit(current())) fail_in_string("invalid escape sequence");
    read_byte_escape(10);
  }
  buffer_.resize(buffer_size);
  buffer_.append(value_, value_size);
}

int Lexer::read_hex_digit() {
  keep();
  if (!is_hex(current())) fail_in_string("hexadecimal digit expected");
  return hex_value(current());
}

/// `\xXX` and `\ddd`.
void Lexer::read_byte_escape(int digits_base) {
  int code = 0;
  if (digits_base == 16) {
    code = read_hex_digit() << 4;
    code += read_hex_digit();
    position_++;
  } else {
    for (int i = 0; i < 3 && is_digit(current()); i++) {
      code = 10 * code + current() - '0';
      keep();
    }
    if (code > 255) fail_in_string("decimal escape too large");
  }
  value_ += static_cast<char>(code);
}

void Lexer::read_utf8_escape() {
  keep();
  if (current() != '{') fail_in_string("missing '{'");
  uint32_t code = static_cast<uint32_t>(read_hex_digit());
  while (keep(), is_hex(current())) {
    if (code > (0x7FFFFFFFu >> 4)) fail_in_string("UTF-8 value too large");
    code = (code << 4) + static_cast<uint32_t>(hex_value(current()));
  }
  if (current() != '}') fail_in_string("missing '}'");
  position_++;
  append_utf8(value_, code);
}

/// On `[` (or `]`): 2 plus the number of `=` when a long bracket starts (ends) here, 1 for a single bracket, 0 for `[=`
/// that is neither. Consumes all but the second bracket; nothing more than the first one when the result is 1.
size_t Lexer::long_bracket_level() {
  const int bracket = current();
  size_t level = 0;
  keep();
  while (current() == '=') {
    keep();
    level++;
  }
  if (current() == bracket) return level + 2;
  return level == 0 ? 1 : 0;
}

void Lexer::read_long_bracket(size_t level, bool is_comment) {
  const int first_line = line_;
  position_++;
  if (at_newline()) newline();
  while (true) {
    if (current() == kEnd) {
      const std::string what = is_comment ? "unfinished long comment" : "unfinished long string";
      fail_here(what + " (starting at line " + std::to_string(first_line) + ")", show_token(TokenKind::EndOfFile));
    }
    if (current() == ']') {
      buffer_.clear();
      if (long_bracket_level() == level) {
        position_++;
        return;
      }
      value_ += buffer_;
    } else if (at_newline()) {
      newline();
      value_ += '\n';
    } else {
      value_ += source_[position_++];
    }
  }
}

}  // namespace triage::lua::rewriter
