#include "bindings/cli/commands/decisions/decision_filter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/config.h>
#include <triage/statistics.h>

#include <algorithm>
#include <set>
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

void check_answered(const std::string& word) {
  if (word.empty()) return;
  std::vector<std::string> words;
  for (size_t i = 0; i < answered_count; ++i) words.emplace_back(to_string(static_cast<Answered>(i)));
  if (std::find(words.begin(), words.end(), word) != words.end()) return;
  throw UsageError(
      fmt::format("--answered {}: expected one of {}{}", word, fmt::join(words, ", "), did_you_mean(word, words)));
}

/// As the log has it: codes are in capitals there.
std::string in_capitals(std::string code) {
  for (char& c : code) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return code;
}

/// The codes that every policy has.
std::vector<std::string> built_in_codes() {
  std::vector<std::string> codes;
  for (int64_t number = 1; number <= to_int(Code::unknown); ++number) codes.push_back(code_name(code_from(number)));
  return codes;
}

/// Of "3"; nothing of the beginning of a hash, such as "05adcc29".
std::optional<uint64_t> number_of_version(const std::string& version) {
  constexpr size_t most_digits = 7, least_of_hash = 4, most_of_hash = 16;
  const size_t size = version.size();
  if (version.empty()) return std::nullopt;
  if (size <= most_digits && version.find_first_not_of("0123456789") == std::string::npos) return std::stoull(version);
  if (size >= least_of_hash && size <= most_of_hash &&
      version.find_first_not_of("0123456789abcdef") == std::string::npos)
    return std::nullopt;
  throw UsageError(fmt::format(
      "--version {}: expected the number of a version, such as 3, or the first 4 to 16 digits of its hash, such as "
      "05adcc29",
      version));
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
      times_(options.since, options.until),
      code_(in_capitals(options.code)),
      number_(number_of_version(options.version)) {
  check_answered(options.answered);
}

void DecisionFilter::note_codes(const Json& decision) {
  constexpr size_t most = 1000;
  const auto samples = decision.find("samples");
  if (code_.empty() || samples == decision.end()) return;
  for (const Json& sample : *samples)
    if (const auto errors = sample.find("errors"); errors != sample.end())
      for (const Json& error : *errors)
        if (codes_.size() < most) codes_.insert(field(error, "code"));
}

void DecisionFilter::check_code() const {
  std::vector<std::string> codes = built_in_codes();
  for (const std::string& code : codes_)
    if (std::find(codes.begin(), codes.end(), code) == codes.end()) codes.push_back(code);
  if (code_.empty() || std::find(codes.begin(), codes.end(), code_) != codes.end()) return;
  if (codes_.empty() && did_you_mean(code_, codes).empty()) return;  // maybe of a policy that has flagged nothing
  throw UsageError(fmt::format("--code {}: expected one of {}{}", options_.code, fmt::join(codes, ", "),
                               did_you_mean(code_, codes)));
}

bool DecisionFilter::in_time(const Json& line) const { return times_.has(line["time"].get_ref<const std::string&>()); }

bool DecisionFilter::is_of_version(const Json& decision) const {
  if (options_.version.empty()) return true;
  return number_ ? count_in(decision, "version") == *number_ : field(decision, "hash").starts_with(options_.version);
}

bool DecisionFilter::takes_all() const {
  return options_.policy.empty() && options_.version.empty() && options_.decision.empty() &&
         options_.answered.empty() && options_.sample.empty() && code_.empty() && options_.location.empty();
}

Match DecisionFilter::match(const Json& decision) const {
  Match match;
  if (!in_time(decision) || !is_named(decision, "policy", options_.policy) ||
      !is_named(decision, "decision_id", options_.decision) || !is_of_version(decision) ||
      (!options_.answered.empty() && field(decision, "answered") != options_.answered))
    return match;
  const bool about_errors = !code_.empty() || !options_.location.empty();
  if (const auto samples = decision.find("samples"); samples != decision.end())
    for (const Json& sample : *samples) {
      if (!is_named(sample, "sample_id", options_.sample)) continue;
      Match::SampleMatch found{&sample, {}};
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
