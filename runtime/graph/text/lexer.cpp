#include "runtime/graph/text/lexer.h"

#include <fmt/format.h>
#include <triage/error.h>

namespace triage::graph {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_word_char(char c) { return is_letter(c) || is_digit(c); }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

class GraphLexer {
 public:
  explicit GraphLexer(std::string_view text) : text_(text) {}

  std::vector<GraphToken> run() {
    if (text_.size() > kLargestText)
      throw GraphError(fmt::format("the graph text has {} bytes; the limit is {}", text_.size(), kLargestText));
    while (skip_blanks()) {
      if (tokens_.size() >= kMostTokens)
        fail_at(line_, 1, fmt::format("the graph text has more than {} words and signs", kMostTokens));
      tokens_.push_back(next());
    }
    begin_token();
    tokens_.push_back(token_);
    return std::move(tokens_);
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  void begin_token() {
    token_ = GraphToken();
    token_.line = line_;
    token_.column = static_cast<int>(at_ - line_start_) + 1;
  }

  /// False at the end of the text.
  bool skip_blanks() {
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '#') take_comment();
      if (at_ >= text_.size()) break;
      if (text_[at_] == '\n') {
        ++line_;
        line_start_ = at_ + 1;
      } else if (text_[at_] != ' ' && text_[at_] != '\t' && text_[at_] != '\r') {
        return true;
      }
    }
    return false;
  }

  void take_comment() {
    size_t end = std::min(text_.find('\n', at_), text_.size());
    if (!tokens_.empty() && tokens_.back().line == line_) tokens_.back().comment = text_.substr(at_, end - at_);
    at_ = end;
  }

  GraphToken next() {
    begin_token();
    char c = peek();
    if (c == '%') return value();
    if (c == '"') return string();
    if (is_letter(c)) return word();
    if (is_digit(c) || (c == '-' && (is_digit(peek(1)) || peek(1) == 'i'))) return number();
    bool left_out = text_.substr(at_, 3) == "...";
    if (!left_out && std::string_view("()[],:=").find(c) == std::string_view::npos)
      fail_at(token_.line, token_.column, fmt::format("unexpected `{}`", c));
    token_.type = GraphToken::Type::sign;
    token_.text = text_.substr(at_, left_out ? 3 : 1);
    at_ += token_.text.size();
    return token_;
  }

  GraphToken word() {
    size_t start = at_;
    while (is_word_char(peek()) || (peek() == '.' && is_word_char(peek(1))) ||
           (peek() == ':' && peek(1) == ':' && is_word_char(peek(2))))
      at_ += peek() == ':' ? 2 : 1;
    token_.type = GraphToken::Type::word;
    token_.text = text_.substr(start, at_ - start);
    return token_;
  }

  GraphToken number() {
    size_t start = at_++;
    for (; is_word_char(peek()) || peek() == '.' || peek() == '+' || peek() == '-'; ++at_)
      if ((peek() == '+' || peek() == '-') && text_[at_ - 1] != 'e') break;  // a sign belongs to an exponent only
    token_.type = GraphToken::Type::number;
    token_.text = text_.substr(start, at_ - start);
    return token_;
  }

  GraphToken value() {
    ++at_;
    if (peek() == '"') {
      string();
      token_.named = true;
    } else {
      size_t start = at_;
      while (is_word_char(peek())) ++at_;
      token_.text = text_.substr(start, at_ - start);
      if (token_.text.empty()) fail_at(token_.line, token_.column, "expected a name or number after `%`");
      token_.named = !is_digit(token_.text[0]);
    }
    token_.type = GraphToken::Type::value;
    return token_;
  }

  GraphToken string() {
    size_t start = ++at_;
    while (peek() != '"') {
      if (at_ >= text_.size() || peek() == '\n')
        fail_at(token_.line, token_.column, "the string is not closed by `\"`");
      at_ += peek() == '\\' && at_ + 1 < text_.size() ? 2 : 1;
    }
    if (!unescape(text_.substr(start, at_ - start), token_.text))
      fail_at(token_.line, token_.column, "the string holds an unknown escape; there are \\\", \\\\, \\n and \\xHH");
    ++at_;
    token_.type = GraphToken::Type::string;
    return token_;
  }

  std::string_view text_;
  size_t at_ = 0, line_start_ = 0;
  int line_ = 1;
  GraphToken token_;
  std::vector<GraphToken> tokens_;
};

}  // namespace

void fail_at(int line, int column, const std::string& what) {
  constexpr size_t longest = 1000;  // names are quoted, whatever their length
  const std::string_view told = std::string_view(what).substr(0, longest);
  throw GraphError(
      fmt::format("graph text, line {}, column {}: {}{}", line, column, told, what.size() > longest ? "..." : ""));
}

std::vector<GraphToken> tokens_of(std::string_view text) { return GraphLexer(text).run(); }

bool unescape(std::string_view text, std::string& out) {
  out.clear();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    char c = ++i < text.size() ? text[i] : '\0';
    if (c == '"' || c == '\\') {
      out += c;
    } else if (c == 'n') {
      out += '\n';
    } else if (c == 'x' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 && hex_digit(text[i + 2]) >= 0) {
      out += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
      i += 2;
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace triage::graph
