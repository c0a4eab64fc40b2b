#include "bindings/cli/commands/decisions/decision_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>

#include "bindings/cli/commands.h"
#include "runtime/policy/decisions/decision_line.h"

namespace triage::cli {
namespace {

/// "10m": that long before now; nothing for a text that is no such time.
std::optional<std::string> time_ago(const std::string& text) {
  constexpr size_t most_digits = 6;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (text.size() < 2 || text.size() > most_digits + 1 || !std::all_of(text.begin(), text.end() - 1, is_digit))
    return std::nullopt;
  constexpr std::string_view units = "smhd";
  constexpr int seconds[] = {1, 60, 3600, 86400};
  const size_t unit = units.find(text.back());
  if (unit == std::string_view::npos) return std::nullopt;
  const std::chrono::seconds ago(int64_t{std::stoi(text)} * seconds[unit]);
  std::string time = policy::time_text(std::chrono::system_clock::now() - ago);
  time.pop_back();  // the Z
  return time;
}

/// Whether a calendar and a clock have it; `time` has the right shape, and what it lacks is the first of its kind.
bool is_possible(const std::string& time) {
  const auto number = [&](size_t at, size_t digits, int without) {
    return time.size() < at + digits ? without : std::stoi(time.substr(at, digits));
  };
  const std::chrono::year_month_day day{std::chrono::year(number(0, 4, 1970)),
                                        std::chrono::month(static_cast<unsigned>(number(5, 2, 1))),
                                        std::chrono::day(static_cast<unsigned>(number(8, 2, 1)))};
  return day.ok() && number(11, 2, 0) < 24 && number(14, 2, 0) < 60 && number(17, 2, 0) < 60;
}

/// A beginning of "2026-05-04T03:02:01.000123Z" that ends behind a number.
/// Without the Z at its end.
std::string checked_time(const char* option, std::string time) {
  if (const auto ago = time_ago(time)) return *ago;
  constexpr std::string_view shape = "dddd-dd-ddTdd:dd:dd.dddddd";
  if (time.size() > 10 && time.back() == 'Z') time.pop_back();
  bool fits = time.empty() || (time.size() >= 4 && time.size() <= shape.size());
  for (size_t i = 0; fits && i < time.size(); ++i)
    fits = shape[i] == 'd' ? time[i] >= '0' && time[i] <= '9' : time[i] == shape[i];
  const bool ends_amid = !time.empty() && time.size() < 20 && time.size() % 3 != 1;  // numbers end at 4, 7, 10, ... 19
  if (fits && !ends_amid) {
    if (time.empty() || is_possible(time)) return time;
    throw UsageError(
        fmt::format("{} {}: there is no such time; expected one in UTC, such as 2026-05-04T03:02", option, time));
  }
  throw UsageError(
      fmt::format("{} {}: expected a time in UTC, or how one begins: 2026-05-04, 2026-05-04T03:02, "
                  "2026-05-04T03:02:01.5; or how long ago: 90s, 10m, 2h, 3d",
                  option, time));
}

}  // namespace

TimeSpan::TimeSpan(const std::string& since, const std::string& until)
    : since_(checked_time("--since", since)), until_(checked_time("--until", until)) {}

}  // namespace triage::cli
