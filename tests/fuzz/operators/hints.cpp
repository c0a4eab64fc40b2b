#include "tests/fuzz/operators/hints.h"

#include <cstdlib>
#include <sstream>
#include <stdexcept>

namespace triage::fuzz {
namespace {

constexpr const char* text =
#include "tests/fuzz/operators/hints.inc"
    ;

/// Alternatives stand between bars, outside of quotes.
Hint parse(std::istringstream& words) {
  Hint hint;
  std::string word;
  while (words >> word) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) throw std::logic_error("hints.inc: no '=' in " + word);
    hint.settings[word.substr(0, equals)] = split(word.substr(equals + 1), '|');
  }
  return hint;
}

using Hints = std::map<std::string, std::vector<Hint>, std::less<>>;

Hints read_hints() {
  Hints hints;
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string names;
    if (!(words >> names)) continue;
    const Hint hint = parse(words);
    for (const std::string& name : split(names, ',')) hints[name].push_back(hint);
  }
  return hints;
}

}  // namespace

std::vector<std::string> split(std::string_view whole, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin <= whole.size()) {
    const size_t end = std::min(whole.find(separator, begin), whole.size());
    parts.emplace_back(whole.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

const std::vector<Hint>& hints_for(std::string_view base_name) {
  static const Hints hints = read_hints();
  static const std::vector<Hint> none;
  auto found = hints.find(base_name);
  if (found == hints.end() && !base_name.empty() && base_name.back() == '_')
    found = hints.find(base_name.substr(0, base_name.size() - 1));
  return found == hints.end() ? none : found->second;
}

int64_t Symbols::letter(char name) {
  auto found = letters_.find(name);
  if (found == letters_.end()) {
    const int64_t value = reach_ != Reach::ordinary ? any_size(random_, reach_)
                          : random_.percent(4)      ? 0
                          : random_.percent(4)      ? random_.pick<int64_t>({8, 16, 17, 33})
                                                    : random_.pick<int64_t>({1, 2, 2, 3, 3, 4, 5, 7});
    found = letters_.emplace(name, value).first;
  }
  return found->second;
}

int64_t Symbols::product(std::string_view expression) {
  int64_t value = 1;
  for (const std::string& factor : split(expression, '*'))
    value *= std::isalpha(static_cast<unsigned char>(factor[0])) ? letter(factor[0])
                                                                 : std::strtoll(factor.c_str(), nullptr, 10);
  return value;
}

int64_t Symbols::value(std::string_view expression) {
  int64_t sum = 0;
  size_t begin = 0;
  while (begin < expression.size()) {
    const bool minus = expression[begin] == '-';
    if (minus || expression[begin] == '+') ++begin;
    const size_t end = std::min(expression.find_first_of("+-", begin), expression.size());
    sum += (minus ? -1 : 1) * product(expression.substr(begin, end - begin));
    begin = end;
  }
  return sum;
}

std::vector<int64_t> Symbols::list(std::string_view expressions) {
  std::vector<int64_t> sizes;
  if (expressions.empty()) return sizes;
  for (const std::string& expression : split(expressions, ',')) {
    if (expression != "B") {
      sizes.push_back(value(expression));
      continue;
    }
    if (!has_leading_)
      for (int64_t rank = random_.below(3); rank > 0; --rank) leading_.push_back(random_.between(1, 3));
    has_leading_ = true;
    sizes.insert(sizes.end(), leading_.begin(), leading_.end());
  }
  return sizes;
}

}  // namespace triage::fuzz
