#include "bindings/cli/testing/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "bindings/cli/terminal.h"

namespace triage::cli {
namespace {

using Json = nlohmann::ordered_json;
using lua::Coverage;

/// "3 NAN, 2 INF, 1 ok": the most frequent first.
std::string samples_text(const Coverage::Samples& samples) {
  std::vector<std::pair<std::string, int64_t>> classes(samples.begin(), samples.end());
  std::stable_sort(classes.begin(), classes.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> parts;
  for (const auto& [name, count] : classes)
    parts.push_back(name == "any" ? fmt::format("{} sample{}", count, count == 1 ? "" : "s")
                                  : fmt::format("{} {}", count, name));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string indented(const std::string& text) {
  std::string result;
  for (char c : text) result += c == '\n' ? "\n        " : std::string(1, c);
  return result;
}

/// With the place in front, which most failures say themselves.
std::string placed_failure(const TestedFile& file, const lua::TestResult& test) {
  const std::string place = fmt::format("{}:{}: ", file.path, test.line);
  return (test.failure.rfind(place, 0) == 0 ? "" : place) + test.failure;
}

void print_rules(const TestedFile& file) {
  if (file.tested.rules.empty()) return;
  size_t widest = 4;
  for (const auto& taken : file.tested.rules) widest = std::max(widest, taken.rule.name.size());
  say("  {}\n", paint(Paint::faint, fmt::format("{:>6}  {:<{}}  samples that took it", "line", "rule", widest)));
  for (const auto& taken : file.tested.rules) {
    const std::string samples = taken.samples.empty() ? paint(Paint::warning, "none") : samples_text(taken.samples);
    say("  {:>6}  {:<{}}  {}\n", taken.rule.line, taken.rule.name, widest, samples);
  }
}

Json rule_json(const Coverage::Taken& taken) {
  Json samples = Json::object();
  for (const auto& [name, count] : taken.samples) samples[name] = count;
  return {{"line", taken.rule.line}, {"column", taken.rule.column}, {"rule", taken.rule.name}, {"samples", samples}};
}

Json file_json(const TestedFile& file) {
  Json tests = Json::array(), rules = Json::array(), uncovered = Json::array();
  for (const auto& test : file.tested.tests) {
    Json item = {{"name", test.name}, {"ok", test.failure.empty()}, {"line", test.line}, {"seconds", test.seconds}};
    if (!test.failure.empty()) item["message"] = test.failure;
    tests.push_back(item);
  }
  for (const auto& taken : file.tested.rules) {
    rules.push_back(rule_json(taken));
    if (taken.samples.empty())
      uncovered.push_back({{"line", taken.rule.line}, {"column", taken.rule.column}, {"rule", taken.rule.name}});
  }
  Json json = {{"path", file.path}, {"policy", file.tested.policy}, {"ok", file.ok()}};
  if (!file.error.empty()) json["error"] = {{"line", file.error_line}, {"message", file.error}};
  json["tests"] = tests;
  json["rules"] = rules;
  json["uncovered"] = uncovered;
  if (!file.tested.coverage_error.empty()) json["coverage_error"] = file.tested.coverage_error;
  json["graphs"] = file.tested.graphs;
  json["graph_breaks"] = file.tested.graph_breaks;
  return json;
}

}  // namespace

size_t TestedFile::failed() const {
  const auto& tests = tested.tests;
  return static_cast<size_t>(
      std::count_if(tests.begin(), tests.end(), [](const auto& test) { return !test.failure.empty(); }));
}

size_t TestedFile::rules_taken() const {
  const auto& rules = tested.rules;
  return static_cast<size_t>(
      std::count_if(rules.begin(), rules.end(), [](const auto& taken) { return !taken.samples.empty(); }));
}

size_t TestRun::tests() const {
  size_t count = 0;
  for (const TestedFile& file : files) count += file.tested.tests.size();
  return count;
}

size_t TestRun::failed() const {
  size_t count = 0;
  for (const TestedFile& file : files) count += file.failed();
  return count;
}

size_t TestRun::broken() const {
  return static_cast<size_t>(
      std::count_if(files.begin(), files.end(), [](const TestedFile& file) { return file.is_broken(); }));
}

bool TestRun::ok() const {
  const bool covered = std::all_of(files.begin(), files.end(), [](const auto& file) { return file.covered(); });
  return failed() == 0 && broken() == 0 && (covered || !full_coverage);
}

void print_tested(const TestedFile& file, bool full_coverage) {
  say("{}\n", paint(Paint::heading, file.path));
  if (!file.error.empty()) {
    say("  {}    {}\n", paint(Paint::error, "FAIL"), indented(file.error));
    return;
  }
  for (const auto& test : file.tested.tests) {
    if (test.failure.empty())
      say("  {}      {}\n", paint(Paint::good, "ok"), test.name);
    else
      say("  {}    {}\n        {}\n", paint(Paint::error, "FAIL"), test.name, indented(placed_failure(file, test)));
  }
  if (file.tested.tests.empty())
    say("  {}\n", paint(full_coverage ? Paint::error : Paint::warning,
                        "it brings no tests (the field `tests` of its policy {...} table)"));
  print_rules(file);
  // Where a policy fails before its first rule, its rules are not what is missing.
  const bool got_there = full_coverage || file.ok() || file.rules_taken() > 0;
  for (const auto& taken : file.tested.rules)
    if (taken.samples.empty() && got_there)
      say("{}:{}:{}: {}: no test has a sample that {} takes\n", file.path, taken.rule.line, taken.rule.column,
          paint(full_coverage ? Paint::error : Paint::warning, full_coverage ? "error" : "warning"), taken.rule.name);
  if (!file.tested.coverage_error.empty())
    say("  {} {}\n", paint(Paint::warning, "rules counted too little, the policy failed while they were watched:"),
        indented(file.tested.coverage_error));
  for (const std::string& reason : file.tested.graph_breaks)
    say("  {} {}\n", paint(Paint::warning, "several graphs, and its script runs between them on every call:"),
        indented(reason));
}

void print_summary(const TestRun& run) {
  size_t rules = 0, taken = 0;
  for (const TestedFile& file : run.files) {
    rules += file.tested.rules.size();
    taken += file.rules_taken();
  }
  const size_t failed = run.failed(), broken = run.broken();
  std::string text = fmt::format("{} passed, {} failed", run.tests() - failed, failed);
  if (broken > 0) text += fmt::format(", {} of {} files broken", broken, run.files.size());
  text += fmt::format("; {} of {} rules took a sample", taken, rules);
  say("{}\n", paint(run.ok() ? Paint::good : Paint::error, text));
}

nlohmann::ordered_json to_json(const TestRun& run) {
  Json files = Json::array();
  size_t rules = 0, taken = 0;
  for (const TestedFile& file : run.files) {
    files.push_back(file_json(file));
    rules += file.tested.rules.size();
    taken += file.rules_taken();
  }
  return {{"ok", run.ok()}, {"tests", run.tests()}, {"failed", run.failed()}, {"broken", run.broken()},
          {"rules", rules}, {"rules_taken", taken}, {"files", files}};
}

}  // namespace triage::cli
