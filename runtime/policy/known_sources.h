#pragma once
#include <deque>
#include <optional>
#include <string>
#include <string_view>

namespace triage::policy {

/// Sources that went live and were not taken back: a file may be put back to one of them whatever came after it. They are compared
/// byte by byte, for what is trusted skips every check of a reload. The oldest are forgotten where they are too many.
class KnownSources {
 public:
  static constexpr size_t most = 1000, most_bytes = 32u << 20;

  /// `proven`: its trial is over, now or earlier.
  void note(const std::string& source, bool proven);
  void forget(std::string_view source);
  /// Nothing for a source that is not known.
  std::optional<bool> proven(std::string_view source) const;

 private:
  struct Known {
    std::string source;
    bool proven;
  };
  std::deque<Known> known_;  // the one noted last is behind
  size_t bytes_ = 0;
};

}  // namespace triage::policy
