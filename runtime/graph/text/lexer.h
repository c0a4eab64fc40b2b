#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace triage::graph {

struct GraphToken {
  enum class Type { word, value, number, string, sign, end };
  Type type = Type::end;
  std::string text;  // of a word, number or sign; a value's name or number; a string's content
  int line = 1, column = 1;
  bool named = false;   // a value written with a name and not a number
  std::string comment;  // after the last token of a line
  bool is(std::string_view sign) const { return type == Type::sign && text == sign; }
  bool is_word(std::string_view word) const { return type == Type::word && text == word; }
};

/// Throws GraphError at a place in the text.
[[noreturn]] void fail_at(int line, int column, const std::string& what);

/// A text may have this much; one that comes from outside shall not ask for more memory than its size explains.
inline constexpr size_t kLargestText = size_t{64} << 20, kMostTokens = 2'000'000;

/// All tokens of a graph's text, closed by one of type `end`. Words are names, dtypes and operators
/// (`aten::add.Tensor`).
std::vector<GraphToken> tokens_of(std::string_view text);

/// Undoes the escapes of string_literal. False where the text ends inside of one or it is none that we write.
bool unescape(std::string_view text, std::string& out);

}  // namespace triage::graph
