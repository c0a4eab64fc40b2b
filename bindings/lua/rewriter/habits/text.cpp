// Hints for text that is no Lua: a table of patterns over the words around the place where the parser gave up.
#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include "bindings/lua/rewriter/habits/habits.h"

namespace triage::lua::rewriter {
namespace {

/// Words stand for themselves, separated by blanks, but these: NAME and STRING are one such word, ANY is one word of a
/// line, REST any words of a line, MORE any words, COLON a `:` with a blank behind it, BEGIN and END a line's begin and
/// end. The parser gave up at one of the words or right behind the last; where a word begins with `>`, at that one.
struct Pattern {
  std::string_view written, hint;
};

constexpr std::array kPatterns = std::to_array<Pattern>({
    // signs
    {"! =", "Lua writes ~= for !="},
    {"( * * NAME", "Lua has no **x: named arguments go in a table behind the others"},
    {"* * =", "Lua has no **=; write x = x ^ ..."},
    {"* *", "Lua writes x ^ 2 for x ** 2"},
    {"/ / =", "Lua has no //=; write x = x // ..."},
    {"< < =", "Lua has no <<=; write x = x << ..."},
    {"> > =", "Lua has no >>=; write x = x >> ..."},
    {"+ =", "Lua has no +=; write x = x + ..."},
    {"- =", "Lua has no -=; write x = x - ..."},
    {"* =", "Lua has no *=; write x = x * ..."},
    {"/ =", "Lua has no /=; write x = x / ..."},
    {"% =", "Lua has no %=; write x = x % ..."},
    {"^ =", "Lua has no ^=; write x = x ^ ..."},
    {"& =", "Lua has no &=; write x = x & ..."},
    {"| =", "Lua has no |=; write x = x | ..."},
    {"@ =", "Lua has no @=; write x = x:matmul(y)"},
    {"& &", "Lua writes `and` for &&; masks take one &"},
    {"| |", "Lua writes `or` for ||; masks take one |"},
    {"= = =", "Lua writes == for ==="},
    {">! NAME", "Lua writes `not x` for !x, and ~x for a mask"},
    {"NAME + + END", "Lua has no ++; write x = x + 1"},
    {": =", "Lua has no assignment within an expression; assign in a line of its own"},
    {"- >", "Lua has no type annotations; a policy declares types in signature = {...}"},
    {">#", "comments begin with -- in Lua"},
    {"BEGIN / /", "comments begin with -- in Lua"},
    {"BEGIN @ NAME", "Lua has no decorators; write f = decorate(f)"},
    {"ANY >@", "Lua writes x:matmul(y) for x @ y"},
    {": >repeat", "repeat is a word of Lua: write x:tile({2, 1}), or x[\"repeat\"](x, {2, 1})"},
    {". >repeat", "repeat is a word of Lua: write x:tile({2, 1}), or x[\"repeat\"](x, {2, 1})"},
    {"\\ END", "in Lua a line goes on in the next without a \\"},
    {"\"\"\"", "Lua writes [[...]] for a text of several lines, and --[[...]] for a comment"},
    // statements
    {"import NAME",
     "Lua has no import: torch, nn, err and flags are there; require \"name\" reads a module of your own"},
    {"from NAME", "Lua has no import: torch, nn, err and flags are there; require \"name\" reads a module of your own"},
    {"def NAME", "Lua writes `local function f(x) ... end` for `def f(x):`"},
    {"class NAME", "Lua has no classes: write functions and tables"},
    {"elif ANY", "Lua writes `elseif c then` for `elif c:`"},
    {"lambda NAME : REST END MORE", "Lua writes `function(x) return x + 1 end` for `lambda x: x + 1`"},
    {"lambda REST", "Lua writes `function(x) return x + 1 end` for `lambda x: x + 1`"},
    {"with REST COLON",
     "Lua writes `local _ <close> = torch.no_grad()` for `with torch.no_grad():`; it holds for the rest of a block"},
    {"try COLON MORE", "Lua writes `local ok, e = pcall(function() ... end)` for try"},
    {"raise NAME", "Lua writes error(\"what is wrong\") for raise"},
    {"assert NAME", "assert is a function in Lua: assert(condition, message)"},
    {"print NAME", "print is a function in Lua: print(x)"},
    {"del NAME", "Lua writes x = nil for del x"},
    {"global NAME", "Lua assigns to variables of outer functions without global or nonlocal"},
    {"nonlocal NAME", "Lua assigns to variables of outer functions without global or nonlocal"},
    {"let NAME", "Lua declares variables with local"},
    {"var NAME", "Lua declares variables with local"},
    {"const NAME", "Lua declares variables with local"},
    {"BEGIN pass END MORE", "an empty block needs no pass in Lua"},
    {"BEGIN continue END MORE", "Lua has no continue: put the rest of the loop into an `if`"},
    {"then continue", "Lua has no continue: put the rest of the loop into an `if`"},
    {"do continue", "Lua has no continue: put the rest of the loop into an `if`"},
    // blocks
    {"else COLON", "Lua writes else without a colon"},
    {"function REST ) >:", "Lua writes `function(x) ... end` without a colon"},
    {"function REST ) >{", "Lua writes `function(x) ... end` for `function(x) { ... }`"},
    {"if REST >{", "Lua writes `if c then ... end` for `if c { ... }`"},
    {"while REST >{", "Lua writes `while c do ... end` for `while c { ... }`"},
    {"for REST >{", "Lua writes `for i, x in ipairs(t) do ... end` for `for x in t { ... }`"},
    {"else >{", "Lua writes `else ... end` for `else { ... }`"},
    {"for NAME in >[ REST", "Lua writes `for i, x in ipairs({1, 2}) do ... end` for `for x in [1, 2]:`"},
    {"for NAME = REST COLON MORE", "Lua writes `for i = 0, 2 do ... end`, which includes its end"},
    {"for REST . items ( ) COLON MORE",
     "Lua writes `for key, value in pairs(t) do ... end` for `for k, v in t.items():`"},
    {"for REST . keys ( ) COLON MORE", "Lua writes `for key in pairs(t) do ... end` for `for k in t.keys():`"},
    {"for REST . values ( ) COLON MORE",
     "Lua writes `for key, value in pairs(t) do ... end` for `for v in t.values():`"},
    {"for NAME in range REST COLON MORE", "Lua writes `for i = 0, n - 1 do ... end` for `for i in range(n):`"},
    {"for REST COLON MORE", "Lua writes `for i, x in ipairs(t) do ... end` for `for x in t:`"},
    {"BEGIN if REST COLON MORE", "Lua writes `if c then ... end` for `if c:`"},
    {"while REST COLON MORE", "Lua writes `while c do ... end` for `while c:`"},
    {"if REST >= REST", "Lua compares with =="},
    {"elseif REST >= REST", "Lua compares with =="},
    {"while REST >= REST", "Lua compares with =="},
    // expressions
    {"is not None", "Lua writes x ~= nil for x is not None"},
    {"is None", "Lua writes x == nil for x is None"},
    {"is >not NAME", "Lua writes x ~= y for x is not y"},
    {"is >True", "Lua writes x == true for x is True"},
    {"is >False", "Lua writes x == false for x is False"},
    {"NAME >is True", "Lua writes x == true for x is True"},
    {"NAME >is False", "Lua writes x == false for x is False"},
    {"NAME >is NAME", "Lua writes x == y for x is y"},
    {"not in", "Lua has no in: a table with names is asked t[name] == nil"},
    {"if REST >in", "Lua has no in: a table with names is asked t[name] ~= nil"},
    {"= REST if REST >else", "Lua writes torch.where(mask, a, b) for tensors, and `c and a or b` for plain values"},
    {"[ REST for REST in REST", "Lua has no list comprehensions: fill a table in a loop, t[#t + 1] = x"},
    {"= >[ ANY", "a list is {1, 2} in Lua"},
    {"( >[ ANY", "a list is {1, 2} in Lua"},
    {", >[ ANY", "a list is {1, 2} in Lua"},
    {"return >[ ANY", "a list is {1, 2} in Lua"},
    {"{ REST STRING >:", "Lua writes {name = 1} for {\"name\": 1}"},
    {"{ NAME COLON", "Lua writes {name = 1} for {\"name\": 1}"},
    {"= ( REST >,", "a list is {1, 2} in Lua; a function gives several results with return a, b"},
    {"function REST ( REST NAME >:", "Lua has no type annotations; a policy declares types in signature = {...}"},
    {"function REST ( REST NAME >=", "Lua has no default arguments: begin the body with if y == nil then y = 1 end"},
    {"local NAME >:", "Lua has no type annotations; a policy declares types in signature = {...}"},
    {"( * NAME", "Lua writes table.unpack(t) for *t"},
    {", * NAME", "Lua writes table.unpack(t) for *t"},
    {"STRING >: NAME", "a text needs parentheses before a method: (\"x = %g\"):format(x)"},
    {"} >[ ANY", "a table needs parentheses before an index, and lists count from 1: ({a, b})[1]"},
    {"NAME >in NAME", "Lua has no in: a table with names is asked t[name] ~= nil"},
    {"STRING >in NAME", "Lua has no in: a table with names is asked t[name] ~= nil"},
    {"STRING >. NAME", "Lua writes string.format(\"x = %g\", x), or \"x = \" .. x"},
});

struct TextWord {
  std::string_view text;
  bool spaced = false;  // a blank or a line's end is behind it
};

constexpr std::string_view kLineEnd = "\n";
constexpr size_t kWindow = 600, kLinesBefore = 10;

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool is_part(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
bool is_name(std::string_view word) { return is_letter(word[0]); }
bool is_string(std::string_view word) { return word.size() > 1 && (word[0] == '"' || word[0] == '\''); }

/// The length of the word at the begin of a text that is not empty.
size_t word_length(std::string_view text) {
  if (text.starts_with("\"\"\"") || text.starts_with("'''")) return 3;
  if (text.starts_with("...")) return 3;
  if (text.starts_with("::")) return 2;
  if (text[0] == '"' || text[0] == '\'') {
    const size_t end = text.find_first_of(text[0] == '"' ? "\"\n" : "'\n", 1);
    return end == std::string_view::npos || text[end] == '\n' ? 1 : end + 1;
  }
  size_t length = 1;
  while (is_part(text[0]) && length < text.size() && is_part(text[length])) length++;
  return length;
}

std::vector<TextWord> words_of(std::string_view text) {
  std::vector<TextWord> words;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == ' ' || text[at] == '\t' || text[at] == '\r') {
      at++;
    } else if (text.substr(at).starts_with("--")) {
      const bool is_long = text.substr(at).starts_with("--[[");
      at = std::min(text.find(is_long ? "]]" : "\n", at), text.size());
      at += is_long && at < text.size() ? 2 : 0;
    } else {
      const size_t length = word_length(text.substr(at)), end = at + length;
      words.push_back(
          {text.substr(at, length), end < text.size() && std::isspace(static_cast<unsigned char>(text[end]))});
      at = end;
    }
  }
  return words;
}

/// The lines around the error, as words.
struct Around {
  std::vector<TextWord> words;
  size_t error = 0;  // the word at which the parser gave up; behind all at the end of the text
  std::string_view source;

  Around(std::string_view whole, size_t byte) : source(whole) {
    byte = std::min(byte, whole.size());
    size_t begin = byte, end = std::min(whole.find('\n', byte), whole.size());
    for (size_t lines = 0; begin > 0 && byte - begin < kWindow; begin--)
      if (whole[begin - 1] == '\n' && lines++ == kLinesBefore) break;
    end = std::min(end + 1, std::min(byte + kWindow, whole.size()));  // with the line's end
    words = words_of(whole.substr(begin, end - begin));
    while (error < words.size() && words[error].text.data() < whole.data() + byte) error++;
  }

  size_t byte_of(size_t word) const {
    return word < words.size() ? static_cast<size_t>(words[word].text.data() - source.data()) : source.size();
  }
};

class Matcher {
 public:
  Matcher(const Around& around, std::vector<std::string_view> pattern)
      : around_(around), pattern_(std::move(pattern)) {}

  /// Where the match begins that is nearest to the error; behind all words where there is none.
  size_t find() const {
    for (size_t begin = std::min(around_.error + 1, around_.words.size() + 1); begin-- > 0;)
      if (matches(begin, 0)) return begin;
    return around_.words.size() + 1;
  }

 private:
  bool matches(size_t word, size_t part) const {
    const std::vector<TextWord>& words = around_.words;
    if (part == pattern_.size()) return around_.error <= word;
    std::string_view wanted = pattern_[part];
    if (wanted == "REST" || wanted == "MORE") {
      for (size_t next = word;; next++) {
        if (matches(next, part + 1)) return true;
        if (next >= words.size() || (wanted == "REST" && words[next].text == kLineEnd)) return false;
      }
    }
    if (wanted == "BEGIN") return (word == 0 || words[word - 1].text == kLineEnd) && matches(word, part + 1);
    if (wanted == "END") return (word >= words.size() || words[word].text == kLineEnd) && matches(word, part + 1);
    if (word >= words.size()) return false;
    if (wanted.size() > 1 && wanted[0] == '>') {
      if (word != around_.error) return false;
      wanted.remove_prefix(1);
    }
    return fits(words[word], wanted) && matches(word + 1, part + 1);
  }

  static bool fits(const TextWord& word, std::string_view wanted) {
    if (wanted == "NAME") return is_name(word.text);
    if (wanted == "STRING") return is_string(word.text);
    if (wanted == "ANY") return word.text != kLineEnd;
    if (wanted == "COLON") return word.text == ":" && word.spaced;
    return word.text == wanted;
  }

  const Around& around_;
  std::vector<std::string_view> pattern_;
};

std::vector<std::string_view> parts_of(std::string_view pattern) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin < pattern.size();) {
    const size_t end = std::min(pattern.find(' ', begin), pattern.size());
    parts.push_back(pattern.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// The `[` that is open at the error, as the number of its word; behind all words where there is none.
size_t open_bracket(const Around& around) {
  int depth = 0;
  for (size_t i = around.error; i-- > 0;) {
    const std::string_view text = around.words[i].text;
    if (text == ")" || text == "]" || text == "}") depth++;
    if ((text == "(" || text == "[" || text == "{") && depth-- == 0) return text == "[" ? i : around.words.size();
  }
  return around.words.size();
}

/// Of `z[:, 0]`, `z[1:3]`, `z[0, 1]`.
std::string hint_of_index(const Around& around) {
  const std::vector<TextWord>& words = around.words;
  const size_t open = open_bracket(around);
  if (open == 0 || open >= words.size()) return "";
  const std::string_view before = words[open - 1].text;
  if (!is_name(before) && before != ")" && before != "]") return "";
  size_t close = open + 1;
  for (int depth = 0; close < words.size() && words[close].text != kLineEnd; close++) {
    const std::string_view text = words[close].text;
    if ((text == ")" || text == "]" || text == "}") && depth-- == 0) break;
    depth += text == "(" || text == "[" || text == "{";
  }
  if (close >= words.size() || words[close].text != "]" || close < around.error) return "";
  const size_t begin = around.byte_of(open) + 1;
  const std::string_view index = around.source.substr(begin, around.byte_of(close) - begin);
  const std::string tensor = is_name(before) ? std::string(before) : "x";
  const bool plain =
      index.size() <= 100 && std::all_of(index.begin(), index.end(), [](char c) { return c >= ' ' && c <= '~'; });
  const std::string table = plain ? index_as_table(tensor, index) : "";
  if (table.empty()) return "";
  return "Lua writes " + table + " for " + tensor + "[" + std::string(index) + "]";
}

std::string_view trimmed(std::string_view text);

/// Of `(a, b)`, which is no value: the parser gave up at the comma.
std::string hint_of_tuple(const Around& around) {
  const std::vector<TextWord>& words = around.words;
  if (around.error >= words.size() || words[around.error].text != ",") return "";
  size_t open = around.error, close = around.error;
  for (int depth = 0; open > 0; open--) {
    const std::string_view text = words[open - 1].text;
    if (text == ")" || text == "]" || text == "}") depth++;
    if ((text == "(" || text == "[" || text == "{") && depth-- == 0) break;
  }
  for (int depth = 0; close < words.size(); close++) {
    const std::string_view text = words[close].text;
    if ((text == ")" || text == "]" || text == "}") && depth-- == 0) break;
    depth += text == "(" || text == "[" || text == "{";
  }
  if (open-- == 0 || close >= words.size() || words[open].text != "(" || words[close].text != ")") return "";
  const std::string_view before = open == 0 ? kLineEnd : words[open - 1].text;
  if (before == "function" || (open > 1 && words[open - 2].text == "function")) return "";  // parameters
  const size_t begin = around.byte_of(open) + 1;
  const std::string items(trimmed(around.source.substr(begin, around.byte_of(close) - begin)));
  if (items.size() > 100 || items.find('\n') != std::string::npos) return "a list is {1, 2} in Lua";
  if (before == "return") return "Lua writes `return " + items + "` for several results";
  if (before == kLineEnd && close + 1 < words.size() && words[close + 1].text == "=")
    return "Lua writes `local " + items + " = ...` for several variables";
  return "Lua writes {" + items + "} for the list (" + items + ")";
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

/// The parts of a text between the `separator`s that stand outside of brackets.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); i++) {
    if (i < text.size() && std::string_view("([{").find(text[i]) != std::string_view::npos) depth++;
    if (i < text.size() && std::string_view(")]}").find(text[i]) != std::string_view::npos) depth--;
    if (i < text.size() && (text[i] != separator || depth > 0)) continue;
    parts.push_back(trimmed(text.substr(begin, i - begin)));
    begin = i + 1;
  }
  return parts;
}

/// `x:size(0)`, where the colon is that of a method.
bool calls_method(std::string_view item) {
  const size_t colon = item.find(':');
  if (colon == std::string_view::npos || colon + 1 >= item.size() || !is_letter(item[colon + 1])) return false;
  return item.find('(', colon) != std::string_view::npos;
}

/// One item of an index of Python as one of ours.
std::string item_as_table(std::string_view item) {
  if (item == "..." || item == ":") return "\"" + std::string(item) + "\"";
  if (item == "None") return "\"new\"";
  const std::vector<std::string_view> bounds = split(item, ':');
  if (bounds.size() == 1 && item.starts_with("[") && item.ends_with("]"))
    return "torch.tensor({" + std::string(trimmed(item.substr(1, item.size() - 2))) + "})";
  if (bounds.size() == 1 || calls_method(item)) return std::string(item);
  std::string table;
  const size_t count = bounds.size() > 2 && bounds[2].empty() ? 2 : bounds.size();
  for (size_t i = 0; i < count; i++)
    table += (i ? ", " : "") + (bounds[i].empty() ? std::string("torch.None") : std::string(bounds[i]));
  return "{" + table + "}";
}

/// "1" of `::-1`, whose steps go back; empty of other items.
std::string step_back(std::string_view item) {
  const std::vector<std::string_view> bounds = split(item, ':');
  if (bounds.size() != 3 || !bounds[0].empty() || !bounds[1].empty() || !bounds[2].starts_with("-")) return "";
  return std::string(trimmed(bounds[2].substr(1)));
}

/// The dim of an item, from the end where "..." is before it.
int dim_of(const std::vector<std::string_view>& items, size_t at) {
  int dim = 0, behind = 0;
  bool from_end = false;
  for (size_t i = 0; i < items.size(); i++) {
    const bool counts = items[i] != "..." && items[i] != "None";
    if (i < at) dim += counts;
    if (i < at) from_end |= items[i] == "...";
    if (i >= at) behind += counts;
  }
  return from_end ? -behind : dim;
}

}  // namespace

std::string index_as_table(std::string_view tensor, std::string_view index) {
  const std::vector<std::string_view> items = split(trimmed(index), ',');
  std::string table, flips;
  bool foreign = items.size() > 1, all_whole = true;
  for (size_t i = 0; i < items.size(); i++) {
    std::string ours = item_as_table(items[i]);
    if (const std::string step = step_back(items[i]); !step.empty()) {
      flips += (flips.empty() ? "" : ", ") + std::to_string(dim_of(items, i));
      ours = step == "1" ? "\":\"" : "{torch.None, torch.None, " + step + "}";
    }
    foreign |= ours != items[i];
    all_whole &= ours == "\":\"";
    table += (table.empty() ? "" : ", ") + ours;
  }
  if (!foreign) return "";
  const std::string flipped = std::string(tensor) + (flips.empty() ? "" : ":flip({" + flips + "})");
  return !flips.empty() && all_whole ? flipped : flipped + "[{" + table + "}]";
}

namespace {

/// The `--` of `n--` above the error, which made the rest of its line a comment; npos where there is none.
size_t decrement_above(std::string_view source, size_t error) {
  const size_t last = error == 0 ? std::string_view::npos : source.find_last_not_of(" \t\r\n", error - 1);
  if (last == std::string_view::npos || last < 2) return std::string_view::npos;
  return source.substr(last - 1, 2) == "--" && is_part(source[last - 2]) ? last - 1 : std::string_view::npos;
}

}  // namespace

std::string hint_of_missing_end(std::string_view source) {
  const size_t at = source.find("else if ");
  if (at == std::string_view::npos) return "";
  const auto line = 1 + std::count(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  return "; `else if` in line " + std::to_string(line) + " opens a second `if`: Lua writes `elseif`";
}

Hint hint_of_text(std::string_view source, size_t error) {
  if (Hint character = hint_of_character(source, error); !character.text.empty()) return character;
  const Around around(source, error);
  if (std::string index = hint_of_index(around); !index.empty()) return {std::move(index), error, {}};
  const std::string tuple = hint_of_tuple(around);
  for (const Pattern& pattern : kPatterns) {
    const size_t begin = Matcher(around, parts_of(pattern.written)).find();
    if (begin <= around.words.size()) return {std::string(pattern.hint), around.byte_of(begin), {}};
  }
  if (!tuple.empty()) return {tuple, error, {}};
  if (const size_t at = decrement_above(source, error); at != std::string_view::npos)
    return {"Lua has no --; write x = x - 1, for -- begins a comment", at, {}};
  return {};
}

}  // namespace triage::lua::rewriter
