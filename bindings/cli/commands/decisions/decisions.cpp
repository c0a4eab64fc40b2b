// `triage decisions`: what the files of a decision log say, in all or of what is asked for.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/positions.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>
#include <utility>

#include "bindings/cli/commands.h"
#include "bindings/cli/commands/decisions/decision_files.h"
#include "bindings/cli/commands/decisions/decision_filter.h"
#include "bindings/cli/terminal.h"
#include "runtime/messages/printable.h"

namespace triage::cli {
namespace {

using Json = nlohmann::ordered_json;
using Files = DecisionFiles;

/// Of names, which a file may have without end: what comes behind so many is counted together.
template <class Key>
class Tally {
 public:
  void add(const Key& key) {
    if (const auto found = counts_.find(key); found != counts_.end())
      ++found->second;
    else if (counts_.size() < most)
      counts_.emplace(key, 1);
    else
      ++others_;
  }
  /// The most frequent first.
  std::vector<std::pair<Key, uint64_t>> sorted() const {
    std::vector<std::pair<Key, uint64_t>> list(counts_.begin(), counts_.end());
    std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    return list;
  }
  uint64_t others() const { return others_; }
  bool empty() const { return counts_.empty(); }

 private:
  static constexpr size_t most = 10'000;
  std::map<Key, uint64_t> counts_;
  uint64_t others_ = 0;
};

struct DecisionSummary {
  uint64_t calls = 0, flagged_calls = 0, flagged = 0, listed = 0, dropped = 0;
  std::string first, last;
  Tally<std::string> answered, done;
  Tally<std::tuple<std::string, std::string, std::string>> errors;  // policy, location, code
  Tally<std::pair<std::string, std::string>> failures;              // policy, message
};

/// `all`: the question is about no samples in particular, so that those count which the line does not list.
void add(DecisionSummary& summary, const Json& decision, const Match& match, bool all) {
  const std::string time = decision["time"].get<std::string>(), policy = field(decision, "policy");
  if (summary.calls++ == 0) summary.first = summary.last = time;
  summary.first = std::min(summary.first, time);
  summary.last = std::max(summary.last, time);
  if (const std::string by = field(decision, "answered"); !by.empty()) summary.answered.add(by);
  if (const std::string failure = field(decision, "failure"); !failure.empty()) summary.failures.add({policy, failure});
  const uint64_t flagged =
      all ? std::max<uint64_t>(count_in(decision, "flagged"), match.samples.size()) : match.samples.size();
  summary.flagged += flagged;
  summary.flagged_calls += flagged > 0;
  summary.listed += match.samples.size();
  for (const Match::SampleMatch& sample : match.samples) {
    if (const std::string done = field(*sample.sample, "done"); !done.empty()) summary.done.add(done);
    for (const Json* error : sample.errors)
      summary.errors.add({policy, field(*error, "location"), field(*error, "code")});
  }
}

std::string listed(const Tally<std::string>& tally) {
  std::vector<std::string> parts;
  for (const auto& [name, count] : tally.sorted()) parts.push_back(fmt::format("{} {}", count, name));
  return fmt::format("{}", fmt::join(parts, ", "));
}

void print_errors(const DecisionSummary& summary) {
  constexpr size_t most_on_screen = 20;
  size_t policy_width = 6, location_width = 8, code_width = 4, shown = 0;
  const auto errors = summary.errors.sorted();
  const auto rows = std::min(errors.size(), most_on_screen);
  for (size_t i = 0; i < rows; ++i) {
    const auto& [policy, location, code] = errors[i].first;
    policy_width = std::max(policy_width, policy.size());
    location_width = std::max(location_width, location.size());
    code_width = std::max(code_width, code.size());
  }
  const auto row = [&](const std::string& policy, const std::string& location, const std::string& code,
                       const std::string& count) {
    return fmt::format("           {:<{}}  {:<{}}  {:<{}}  {:>7}", policy, policy_width, location, location_width, code,
                       code_width, count);
  };
  if (rows > 0) say("{}\n", paint(Paint::faint, row("policy", "location", "code", "samples")));
  for (; shown < rows; ++shown) {
    const auto& [policy, location, code] = errors[shown].first;
    say("{}\n", messages::one_line(row(policy, location, code, std::to_string(errors[shown].second))));
  }
  const uint64_t others = errors.size() - rows + summary.errors.others();
  if (others > 0) say("           {}\n", paint(Paint::faint, fmt::format("and {} more; --json lists them", others)));
}

void print_failures(const DecisionSummary& summary) {
  constexpr size_t most_on_screen = 5;
  const auto failures = summary.failures.sorted();
  for (size_t i = 0; i < std::min(failures.size(), most_on_screen); ++i) {
    const auto& [policy, message] = failures[i].first;
    say("  {:<8} {}  {}: {}\n", i == 0 ? "failures" : "", failures[i].second, policy,
        message.substr(0, message.find('\n')));
  }
  if (failures.size() > most_on_screen)
    say("           {}\n",
        paint(Paint::faint, fmt::format("and {} other messages; --json lists them", failures.size() - most_on_screen)));
}

void print_summary(const DecisionSummary& summary, const Files& files) {
  say("{}\n", paint(Paint::heading, counted(summary.calls, "decision")));
  if (summary.calls > 0) say("  {:<8} {} to {}\n", "time", summary.first, summary.last);
  if (!summary.answered.empty()) say("  {:<8} {}\n", "answered", listed(summary.answered));
  if (summary.flagged > 0) {
    std::string line =
        fmt::format("{} in {}", counted(summary.flagged, "sample"), counted(summary.flagged_calls, "call"));
    if (summary.listed < summary.flagged) line += fmt::format("; the lines list {} of them", summary.listed);
    if (!summary.done.empty()) line += ": " + listed(summary.done);
    say("  {:<8} {}\n", "flagged", line);
  }
  print_errors(summary);
  print_failures(summary);
  if (summary.dropped > 0)
    say("  {:<8} {} not in the log: too many waited\n", "dropped", counted(summary.dropped, "decision"));
  print_damaged(files, stdout);
}

Json to_json(const DecisionSummary& summary, const Files& files) {
  const auto of = [](const Tally<std::string>& tally) {
    Json counts = Json::object();
    for (const auto& [name, count] : tally.sorted()) counts[name] = count;
    return counts;
  };
  Json errors = Json::array(), failures = Json::array();
  for (const auto& [key, count] : summary.errors.sorted())
    errors.push_back(
        {{"policy", std::get<0>(key)}, {"location", std::get<1>(key)}, {"code", std::get<2>(key)}, {"samples", count}});
  for (const auto& [key, count] : summary.failures.sorted())
    failures.push_back({{"policy", key.first}, {"failure", key.second}, {"calls", count}});
  return {{"decisions", summary.calls},
          {"first", summary.calls ? Json(summary.first) : Json()},
          {"last", summary.calls ? Json(summary.last) : Json()},
          {"answered", of(summary.answered)},
          {"flagged", {{"samples", summary.flagged}, {"calls", summary.flagged_calls}, {"listed", summary.listed}}},
          {"done", of(summary.done)},
          {"errors", errors},
          {"failures", failures},
          {"dropped", summary.dropped},
          {"damaged", damaged_json(files)}};
}

/// " at [3, 17]"; empty where the line has none.
std::string position_in(const Json& error) {
  const auto position = error.find("position");
  return position == error.end() ? "" : " at " + position_text(position->get<std::vector<int64_t>>());
}

std::string sample_text(const Match::SampleMatch& match) {
  std::vector<std::string> errors;
  for (const Json* error : match.errors)
    errors.push_back(fmt::format("{} @ {}{}", field(*error, "code"), field(*error, "location"), position_in(*error)));
  const std::string id = field(*match.sample, "sample_id");
  return fmt::format("{}{} {} {}", count_in(*match.sample, "sample"), id.empty() ? "" : " (" + id + ")",
                     fmt::join(errors, ", "), field(*match.sample, "done"));
}

/// "v2 05adcc29": numbers begin anew with each process, hashes do not. Only the number where the log has no hash.
std::string version_text(const Json& decision) {
  constexpr size_t shown = 8;
  constexpr std::string_view mask = "masked:";
  const std::string hash = field(decision, "hash");
  const size_t start = hash.rfind(mask, 0) == 0 ? mask.size() : 0;
  return fmt::format("v{}{}{}", count_in(decision, "version"), hash.empty() ? "" : " ", hash.substr(0, start + shown));
}

/// One line: a log is read with `grep`, too.
void print_decision(const Json& decision, const Match& match) {
  constexpr size_t most_samples = 3;
  std::string line = fmt::format("{}  {} {}  {}", field(decision, "time"), field(decision, "policy"),
                                 version_text(decision), field(decision, "answered"));
  if (const std::string id = field(decision, "decision_id"); !id.empty()) line += fmt::format("  decision {}", id);
  line += fmt::format("  {} of {} flagged", count_in(decision, "flagged"), count_in(decision, "batch"));
  for (size_t i = 0; i < std::min(match.samples.size(), most_samples); ++i)
    line += (i == 0 ? ": " : "; ") + sample_text(match.samples[i]);
  if (match.samples.size() > most_samples) line += fmt::format("; and {} more", match.samples.size() - most_samples);
  if (const std::string failure = field(decision, "failure"); !failure.empty())
    line += "  failure: " + failure.substr(0, failure.find('\n'));
  if (const std::string capsule = field(decision, "capsule"); !capsule.empty()) line += "  capsule " + capsule;
  say("{}\n", messages::one_line(line));
}

/// What is in the files, for a question that no decision answers: a misspelt name should not look like good news.
struct DecisionLogSummary {
  uint64_t calls = 0;
  std::string first, last;
  Tally<std::string> policies;

  void add(const Json& decision) {
    const std::string time = decision["time"].get<std::string>();
    first = calls == 0 ? time : std::min(first, time);
    last = calls == 0 ? time : std::max(last, time);
    ++calls;
    policies.add(field(decision, "policy"));
  }
  void tell() const {
    if (calls == 0) return;
    say(stderr, "triage decisions: no decision matches; the log has {}, from {} to {}; by policy: {}\n", calls, first,
        last, listed(policies));
  }
};

}  // namespace

int run(const DecisionsCommand& options) {
  DecisionFilter filter(options);
  const Files files = open_decision_files("triage decisions", options.files);
  DecisionSummary summary;
  DecisionLogSummary contents;
  bool any = false;
  const bool all = filter.takes_all();
  for (const auto& file : files) {
    while (const std::optional<Json> line = file->next()) {
      if (line->contains("event")) continue;  // of a policy: `triage incident` reads it
      if (line->contains("dropped")) {
        if (filter.in_time(*line)) summary.dropped += count_in(*line, "dropped");
        continue;
      }
      contents.add(*line);
      filter.note_codes(*line);
      const Match match = filter.match(*line);
      if (!match.matches) continue;
      any = true;
      if (!options.list)
        add(summary, *line, match, all);
      else if (options.json)
        print_json(*line, /*on_one_line=*/true);
      else
        print_decision(*line, match);
    }
  }
  filter.check_code();
  if (options.list)
    print_damaged(files, stderr);
  else if (options.json)
    print_json(to_json(summary, files));
  else
    print_summary(summary, files);
  if (!any) contents.tell();
  return 0;
}

}  // namespace triage::cli
