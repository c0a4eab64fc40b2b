#pragma once
#include <string>

namespace triage::cli {

/// What `--since` and `--until` ask for. Times are texts of one shape, "2026-05-04T03:02:01.000123Z".
class TimeSpan {
 public:
  /// A time in UTC, or how one begins, or how long ago it was ("10m"); empty: no bound. Throws UsageError for what is
  /// none.
  TimeSpan(const std::string& since, const std::string& until);
  bool has(const std::string& time) const { return time >= since_ && !is_past(time); }
  /// Behind the end. What begins as the end does is not.
  bool is_past(const std::string& time) const { return !until_.empty() && time.compare(0, until_.size(), until_) > 0; }
  bool is_bounded() const { return !since_.empty() || !until_.empty(); }

 private:
  const std::string since_, until_;
};

}  // namespace triage::cli
