#include "bindings/lua/sandbox/pattern.h"

#include <cctype>
#include <cstring>
#include <string>
#include <utility>

/// Contract: positions are offsets into subject and pattern; `failed` stands for "no match". Recursion is limited to
/// 200 levels as in Lua ("pattern too complex"); everything that can loop counts its steps.
namespace triage::lua {
namespace {

constexpr int max_depth = 200;
constexpr char escape = '%';

bool matches_class(unsigned char c, unsigned char name) {
  bool result = false;
  switch (std::tolower(name)) {
    case 'a':
      result = std::isalpha(c) != 0;
      break;
    case 'c':
      result = std::iscntrl(c) != 0;
      break;
    case 'd':
      result = std::isdigit(c) != 0;
      break;
    case 'g':
      result = std::isgraph(c) != 0;
      break;
    case 'l':
      result = std::islower(c) != 0;
      break;
    case 'p':
      result = std::ispunct(c) != 0;
      break;
    case 's':
      result = std::isspace(c) != 0;
      break;
    case 'u':
      result = std::isupper(c) != 0;
      break;
    case 'w':
      result = std::isalnum(c) != 0;
      break;
    case 'x':
      result = std::isxdigit(c) != 0;
      break;
    case 'z':
      result = c == 0;
      break;
    default:
      return name == c;
  }
  return std::isupper(name) != 0 ? !result : result;
}

/// One level of recursion, also when an exception passes.
struct Depth {
  explicit Depth(int& depth) : depth(depth) {
    if (depth >= max_depth) throw LibraryError("pattern too complex");
    ++depth;
  }
  ~Depth() { --depth; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;
  int& depth;
};

}  // namespace

PatternMatcher::PatternMatcher(std::string_view subject, std::string_view pattern, Charge charge)
    : subject_(subject), pattern_(pattern), charge_(std::move(charge)) {}

void PatternMatcher::settle() {
  const uint64_t steps = std::exchange(steps_, 0);
  if (charge_ && steps > 0) charge_(steps);
}

std::optional<size_t> PatternMatcher::match(size_t start) {
  level_ = 0;
  depth_ = 0;
  const size_t end = match_from(start, 0);
  if (end == failed) return std::nullopt;
  return end;
}

size_t PatternMatcher::match_from(size_t s, size_t p) {
  const Depth depth(depth_);
  bool again = true;
  while (again) {
    step();
    if (p == pattern_.size()) return s;
    size_t next_s = s, next_p = p;
    again = false;
    const size_t result = match_item(s, p, again, next_s, next_p);
    if (!again) return result;
    s = next_s;
    p = next_p;
  }
  return s;
}

/// Matches what stands at `p`. Either it finishes the rest of the pattern and returns where, or it sets `again`: go on
/// at `next_s`, `next_p` without recursion.
size_t PatternMatcher::match_item(size_t s, size_t p, bool& again, size_t& next_s, size_t& next_p) {
  switch (pattern_[p]) {
    case '(':
      return pattern_at(p + 1) == ')' ? open_capture(s, p + 2, position) : open_capture(s, p + 1, unfinished);
    case ')':
      return close_capture(s, p + 1);
    case '$':
      if (p + 1 == pattern_.size()) return s == subject_.size() ? s : failed;
      return match_single_with_suffix(s, p, again, next_s, next_p);
    case escape:
      return match_escape(s, p, again, next_s, next_p);
    default:
      return match_single_with_suffix(s, p, again, next_s, next_p);
  }
}

size_t PatternMatcher::match_escape(size_t s, size_t p, bool& again, size_t& next_s, size_t& next_p) {
  const unsigned char what = pattern_at(p + 1);
  if (what == 'b') {
    next_s = match_balance(s, p + 2);
    next_p = p + 4;
  } else if (what == 'f') {
    p += 2;
    if (pattern_at(p) != '[') throw LibraryError("missing '[' after '%f' in pattern");
    const size_t end = item_end(p);
    const unsigned char before = s == 0 ? 0 : subject_at(s - 1);
    const bool frontier = !matches_set(before, p, end - 1) && matches_set(subject_at(s), p, end - 1);
    next_s = frontier ? s : failed;
    next_p = end;
  } else if (std::isdigit(what) != 0) {
    next_s = match_back_reference(s, what);
    next_p = p + 2;
  } else {
    return match_single_with_suffix(s, p, again, next_s, next_p);
  }
  again = next_s != failed;
  return failed;
}

size_t PatternMatcher::match_single_with_suffix(size_t s, size_t p, bool& again, size_t& next_s, size_t& next_p) {
  const size_t end = item_end(p);
  const unsigned char suffix = pattern_at(end);
  if (!matches_single(s, p, end)) {
    if (suffix != '*' && suffix != '?' && suffix != '-') return failed;
    again = true;  // matches nothing of the subject
    next_s = s;
    next_p = end + 1;
    return failed;
  }
  switch (suffix) {
    case '?': {
      const size_t result = match_from(s + 1, end + 1);
      if (result != failed) return result;
      again = true;
      next_s = s;
      next_p = end + 1;
      return failed;
    }
    case '+':
      return expand_most(s + 1, p, end);
    case '*':
      return expand_most(s, p, end);
    case '-':
      return expand_least(s, p, end);
    default:
      again = true;
      next_s = s + 1;
      next_p = end;
      return failed;
  }
}

/// Where the single-character item at `p` ends (its suffix not counted).
size_t PatternMatcher::item_end(size_t p) {
  const char first = pattern_[p++];
  if (first == escape) {
    if (p == pattern_.size()) throw LibraryError("malformed pattern (ends with '%')");
    return p + 1;
  }
  if (first != '[') return p;
  if (pattern_at(p) == '^') ++p;
  do {  // looks for a ']'; one that comes first belongs to the set
    step();
    if (p == pattern_.size()) throw LibraryError("malformed pattern (missing ']')");
    if (pattern_[p++] == escape && p < pattern_.size()) ++p;
  } while (pattern_at(p) != ']' || p == pattern_.size());
  return p + 1;
}

bool PatternMatcher::matches_single(size_t s, size_t p, size_t end) {
  step();
  if (s >= subject_.size()) return false;
  const unsigned char c = subject_at(s);
  switch (pattern_[p]) {
    case '.':
      return true;
    case escape:
      return matches_class(c, pattern_at(p + 1));
    case '[':
      return matches_set(c, p, end - 1);
    default:
      return pattern_at(p) == c;
  }
}

/// Is `c` in the set whose '[' is at `p` and whose ']' is at `last`?
bool PatternMatcher::matches_set(unsigned char c, size_t p, size_t last) {
  bool inside = true;
  if (pattern_at(p + 1) == '^') {
    inside = false;
    ++p;
  }
  while (++p < last) {
    step();
    if (pattern_[p] == escape) {
      ++p;
      if (matches_class(c, pattern_at(p))) return inside;
    } else if (pattern_at(p + 1) == '-' && p + 2 < last) {
      p += 2;
      if (pattern_at(p - 2) <= c && c <= pattern_at(p)) return inside;
    } else if (pattern_at(p) == c) {
      return inside;
    }
  }
  return !inside;
}

size_t PatternMatcher::match_balance(size_t s, size_t p) {
  if (p + 1 >= pattern_.size()) throw LibraryError("malformed pattern (missing arguments to '%b')");
  const unsigned char open = pattern_at(p), close = pattern_at(p + 1);
  if (s >= subject_.size() || subject_at(s) != open) return failed;
  int64_t nesting = 1;
  while (++s < subject_.size()) {
    step();
    const unsigned char c = subject_at(s);
    if (c == close) {
      if (--nesting == 0) return s + 1;
    } else if (c == open) {
      ++nesting;
    }
  }
  return failed;
}

size_t PatternMatcher::expand_most(size_t s, size_t p, size_t end) {
  size_t count = 0;
  while (matches_single(s + count, p, end)) ++count;
  for (;; --count) {
    const size_t result = match_from(s + count, end + 1);
    if (result != failed || count == 0) return result;
  }
}

size_t PatternMatcher::expand_least(size_t s, size_t p, size_t end) {
  for (;; ++s) {
    const size_t result = match_from(s, end + 1);
    if (result != failed) return result;
    if (!matches_single(s, p, end)) return failed;
  }
}

size_t PatternMatcher::open_capture(size_t s, size_t p, ptrdiff_t what) {
  if (level_ >= max_captures) throw LibraryError("too many captures");
  captures_[static_cast<size_t>(level_)] = {s, what};
  ++level_;
  const size_t result = match_from(s, p);
  if (result == failed) --level_;
  return result;
}

size_t PatternMatcher::close_capture(size_t s, size_t p) {
  int open = level_ - 1;
  while (open >= 0 && captures_[static_cast<size_t>(open)].length != unfinished) --open;
  if (open < 0) throw LibraryError("invalid pattern capture");
  Capture& closing = captures_[static_cast<size_t>(open)];
  closing.length = static_cast<ptrdiff_t>(s - closing.begin);
  const size_t result = match_from(s, p);
  if (result == failed) closing.length = unfinished;
  return result;
}

size_t PatternMatcher::match_back_reference(size_t s, unsigned char digit) {
  const int index = digit - '1';
  if (index < 0 || index >= level_ || capture(index).length == unfinished)
    throw LibraryError("invalid capture index %" + std::to_string(index + 1));
  // A position capture has no text; Lua takes its mark for a length that nothing is as long as.
  if (capture(index).length == position) return failed;
  const auto length = static_cast<size_t>(capture(index).length);
  step(length / 16);
  if (subject_.size() - s < length) return failed;
  const bool same = std::memcmp(subject_.data() + capture(index).begin, subject_.data() + s, length) == 0;
  return same ? s + length : failed;
}

}  // namespace triage::lua
