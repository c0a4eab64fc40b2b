#include "bindings/cli/commands/decisions/decision_filter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/config.h>
#include <triage/statistics.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/cli/terminal.h"
#include "runtime/location/glob.h"
#include "runtime/policy/decisions/mask.h"

namespace triage::cli {
namespace {

using Json = nlohmann::ordered_json;

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
                  "2026-05-04T03:02:01.5",
                  option, time));
}

void check_answered(const std::string& word) {
  if (word.empty()) return;
  std::vector<std::string> words;
  for (size_t i = 0; i < answered_count; ++i) words.emplace_back(to_string(static_cast<Answered>(i)));
  if (std::find(words.begin(), words.end(), word) != words.end()) return;
  throw UsageError(
      fmt::format("--answered {}: expected one of {}{}", word, fmt::join(words, ", "), did_you_mean(word, words)));
}

/// As the log has it: codes are in capitals there.
std::string checked_code(const std::string& given) {
  std::string code = given;
  for (char& c : code) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  std::vector<std::string> codes;
  for (int64_t number = 1; number <= to_int(Code::unknown); ++number) codes.push_back(code_name(code_from(number)));
  if (code.empty() || std::find(codes.begin(), codes.end(), code) != codes.end()) return code;
  throw UsageError(
      fmt::format("--code {}: expected one of {}{}", given, fmt::join(codes, ", "), did_you_mean(code, codes)));
}

/// A log may have the hash of a name in its place (docs/decisions.md).
bool is_named(const Json& object, const char* name, const std::string& wanted) {
  if (wanted.empty()) return true;
  const std::string there = field(object, name);
  return there == wanted || there == policy::masked(wanted, "");
}

}  // namespace

std::string field(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? "" : found->get<std::string>();
}

uint64_t count_in(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? 0 : found->get<uint64_t>();
}

DecisionFilter::DecisionFilter(const DecisionsCommand& options)
    : options_(options),
      since_(checked_time("--since", options.since)),
      until_(checked_time("--until", options.until)),
      code_(checked_code(options.code)) {
  check_answered(options.answered);
}

/// Times are texts of one shape. What begins as `until` does is in.
bool DecisionFilter::in_time(const Json& line) const {
  const std::string& time = line["time"].get_ref<const std::string&>();
  return time >= since_ && (until_.empty() || time.substr(0, until_.size()) <= until_);
}

bool DecisionFilter::takes_all() const {
  return options_.policy.empty() && options_.decision.empty() && options_.answered.empty() && options_.sample.empty() &&
         code_.empty() && options_.location.empty();
}

Match DecisionFilter::match(const Json& decision) const {
  Match match;
  if (!in_time(decision) || !is_named(decision, "policy", options_.policy) ||
      !is_named(decision, "decision_id", options_.decision) ||
      (!options_.answered.empty() && field(decision, "answered") != options_.answered))
    return match;
  const bool about_errors = !code_.empty() || !options_.location.empty();
  if (const auto samples = decision.find("samples"); samples != decision.end())
    for (const Json& sample : *samples) {
      if (!is_named(sample, "sample_id", options_.sample)) continue;
      Match::Sample found{&sample, {}};
      if (const auto errors = sample.find("errors"); errors != sample.end())
        for (const Json& error : *errors)
          if ((code_.empty() || field(error, "code") == code_) &&
              (options_.location.empty() || matches_glob(options_.location, field(error, "location"))))
            found.errors.push_back(&error);
      if (!about_errors || !found.errors.empty()) match.samples.push_back(std::move(found));
    }
  match.matches = !match.samples.empty() || (!about_errors && options_.sample.empty());
  return match;
}

}  // namespace triage::cli
