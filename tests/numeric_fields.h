#pragma once
// The numeric members of the structs that public headers declare, so that a test of them notices a new one.
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <regex>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

namespace triage::test {

/// "RuntimeOptions::trial_calls".
using Fields = std::set<std::string>;

namespace fields {

inline std::string code_of(const std::filesystem::path& header) {
  std::ifstream in(header);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return std::regex_replace(text, std::regex("//[^\n]*|#[^\n]*"), "");
}

/// The text between the brace at `open` and the one that closes it.
inline std::string block(const std::string& code, size_t open) {
  int depth = 0;
  for (size_t at = open; at < code.size(); ++at) {
    depth += code[at] == '{' ? 1 : code[at] == '}' ? -1 : 0;
    if (depth == 0) return code.substr(open + 1, at - open - 1);
  }
  return "";
}

/// Members of a body, without those of structs and functions inside it.
inline std::vector<std::string> members(const std::string& body) {
  std::vector<std::string> found{""};
  int depth = 0;
  for (const char c : body) {
    if (c == '}' && --depth == 0) found.emplace_back();
    if (depth == 0 && c == ';') found.emplace_back();
    if (depth == 0 && c != ';' && c != '}' && c != '{') found.back() += c;
    if (c == '{') ++depth;
  }
  return found;
}

/// The names that a member declares, if it is a number.
inline std::vector<std::string> numbers_of(const std::string& member) {
  static const std::regex number(
      "^\\s*(?:std::optional<)?(?:const )?(?:u?int(?:8|16|32|64)?_t|size_t|int|double|float|std::chrono::\\w+|"
      "std::chrono::(?:steady|system)_clock::time_point)>?\\s+([^*&()]*)$");
  std::smatch match;
  std::vector<std::string> names;
  const std::string plain = std::regex_replace(member, std::regex("=[^,]*"), "");
  if (!std::regex_match(plain, match, number)) return names;
  const std::string declared = match[1];
  static const std::regex name("(?:^|,)\\s*(\\w+)");
  for (std::sregex_iterator each(declared.begin(), declared.end(), name), end; each != end; ++each)
    names.push_back((*each)[1]);
  return names;
}

}  // namespace fields

/// Of all structs of a header, those inside structs too.
inline Fields numeric_fields(const std::filesystem::path& header) {
  Fields found;
  const std::string code = fields::code_of(header);
  static const std::regex begin("struct (?:TRIAGE_API )?(\\w*)[^;{}()]*\\{");
  for (std::sregex_iterator each(code.begin(), code.end(), begin), end; each != end; ++each) {
    const size_t open = static_cast<size_t>(each->position() + each->length()) - 1;
    const std::string body = fields::block(code, open);
    std::string name = (*each)[1];
    std::smatch behind;  // "typedef struct {...} DLDevice;"
    const std::string rest = code.substr(open + body.size() + 2, 80);
    if (name.empty() && std::regex_search(rest, behind, std::regex("^\\s*(\\w+)\\s*;"))) name = behind[1];
    for (const std::string& member : fields::members(body))
      for (const std::string& field : fields::numbers_of(member)) found.insert(name + "::" + field);
  }
  return found;
}

/// Values at the ends of a type of numbers, as many as it has.
template <class Number>
std::vector<Number> ends_of() {
  using Limits = std::numeric_limits<Number>;
  std::vector<Number> ends = {Number{0}, Number{1}, Limits::max(), Limits::lowest()};
  if constexpr (std::is_floating_point_v<Number>)
    for (const double more : {-0.0, -1.0, 1e10, -1e10, double{Limits::min()}, std::nan(""), HUGE_VAL, -HUGE_VAL})
      ends.push_back(static_cast<Number>(more));
  if constexpr (std::is_integral_v<Number>) {
    if (std::is_signed_v<Number>) ends.push_back(static_cast<Number>(-1));
    for (const Number more : {static_cast<Number>(Limits::max() - 1), static_cast<Number>(Limits::lowest() + 1),
                              static_cast<Number>(Limits::max() / 2 + 1)})
      ends.push_back(more);
  }
  return ends;
}

}  // namespace triage::test
