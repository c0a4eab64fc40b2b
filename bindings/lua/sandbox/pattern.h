#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string_view>

/// Lua 5.4 patterns, matched step by step under a budget. The matcher of Lua's own string library cannot be
/// interrupted:
/// `("x"):rep(200000):find((".-"):rep(5) .. "y")` runs for days. Results and error messages are those of Lua.
namespace triage::lua {

/// An error with Lua's wording ("malformed pattern (ends with '%')").
struct LibraryError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class PatternMatcher {
 public:
  /// Called about every thousand steps with how many were taken; may throw to stop the match.
  using Charge = std::function<void(uint64_t steps)>;

  static constexpr int max_captures = 32;

  /// What a capture holds: text, the position it stands at, or nothing yet.
  struct Capture {
    size_t begin = 0;
    ptrdiff_t length = 0;  // or one of the two below
  };
  static constexpr ptrdiff_t unfinished = -1;
  static constexpr ptrdiff_t position = -2;

  /// Both views must stay alive; `pattern` comes without its leading '^'.
  PatternMatcher(std::string_view subject, std::string_view pattern, Charge charge);

  /// Tries to match the whole pattern at `start`; the end of the match, or nothing. Throws LibraryError.
  std::optional<size_t> match(size_t start);

  /// Captures of the last match.
  int captures() const { return level_; }
  const Capture& capture(int index) const { return captures_[static_cast<size_t>(index)]; }

  /// Hands over the steps not charged yet.
  void settle();

 private:
  static constexpr size_t failed = static_cast<size_t>(-1);

  void step(size_t count = 1) {
    steps_ += count;
    if (steps_ >= 1000) settle();
  }
  /// The byte at a place, 0 at the end: both strings count as if they ended with a zero byte.
  unsigned char subject_at(size_t s) const { return s < subject_.size() ? static_cast<unsigned char>(subject_[s]) : 0; }
  unsigned char pattern_at(size_t p) const { return p < pattern_.size() ? static_cast<unsigned char>(pattern_[p]) : 0; }

  size_t match_from(size_t s, size_t p);
  size_t match_item(size_t s, size_t p, bool& again, size_t& next_s, size_t& next_p);
  size_t match_escape(size_t s, size_t p, bool& again, size_t& next_s, size_t& next_p);
  size_t match_single_with_suffix(size_t s, size_t p, bool& again, size_t& next_s, size_t& next_p);
  size_t item_end(size_t p);
  bool matches_single(size_t s, size_t p, size_t end);
  bool matches_set(unsigned char c, size_t p, size_t last);
  size_t match_balance(size_t s, size_t p);
  size_t expand_most(size_t s, size_t p, size_t end);
  size_t expand_least(size_t s, size_t p, size_t end);
  size_t open_capture(size_t s, size_t p, ptrdiff_t what);
  size_t close_capture(size_t s, size_t p);
  size_t match_back_reference(size_t s, unsigned char digit);

  std::string_view subject_;
  std::string_view pattern_;
  Charge charge_;
  uint64_t steps_ = 0;
  int depth_ = 0;
  int level_ = 0;
  std::array<Capture, max_captures> captures_;
};

}  // namespace triage::lua
