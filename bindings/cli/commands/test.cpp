#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/cli/calls/call.h"
#include "bindings/cli/calls/given.h"
#include "bindings/cli/calls/limits.h"
#include "bindings/cli/commands.h"
#include "bindings/cli/terminal.h"
#include "bindings/lua/rewriter/rewriter.h"
#include "bindings/lua/testing/policy_tests.h"
#include "runtime/files/disk.h"
#include "runtime/messages/printable.h"

namespace triage::cli {
namespace {

/// One policy file, tested. With an `error` it could not be loaded, and there is nothing else.
struct TestedFile {
  std::string path;
  std::string error;
  int error_line = 0;
  double seconds = 0;
  lua::PolicyTests tested;

  bool is_broken() const { return !error.empty(); }
  size_t failed() const;  // of its tests
  bool ok() const { return !is_broken() && failed() == 0; }
  size_t rules_taken() const;
  bool covered() const { return !tested.tests.empty() && rules_taken() == tested.rules.size(); }
};

struct TestRun {
  std::vector<TestedFile> files;
  bool full_coverage = false;  // a rule that took no sample is a failure, and so is a file without tests

  size_t tests() const;
  size_t failed() const;  // of the tests
  size_t broken() const;  // files that could not be loaded, whose tests nobody knows
  bool ok() const;
};

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
  const std::string place = test.line > 0 ? fmt::format("{}:{}: ", file.path, test.line) : file.path + ": ";
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

Json rule_json(const Coverage::RuleCoverage& taken) {
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

/// For a person, after each file and at the end.
void print_tested(const TestedFile& file, bool full_coverage) {
  const std::string path = messages::one_line(file.path);
  say("{}\n", paint(Paint::heading, path));
  if (!file.error.empty()) {
    say("  {}    {}\n", paint(Paint::error, "FAIL"), indented(file.error));
    return;
  }
  for (const auto& test : file.tested.tests) {
    if (test.failure.empty())
      say("  {}      {}\n", paint(Paint::good, "ok"), messages::one_line(test.name));
    else
      say("  {}    {}\n        {}\n", paint(Paint::error, "FAIL"), messages::one_line(test.name),
          indented(placed_failure(file, test)));
  }
  if (file.tested.tests.empty())
    say("  {}\n", paint(full_coverage ? Paint::error : Paint::warning,
                        "the policy has no tests (the field `tests` of its policy {...} table)"));
  print_rules(file);
  // Where a policy fails before its first rule, its rules are not what is missing.
  const bool got_there = full_coverage || file.ok() || file.rules_taken() > 0;
  for (const auto& taken : file.tested.rules)
    if (taken.samples.empty() && got_there)
      say("{}:{}:{}: {}: no test has a sample that {} takes\n", path, taken.rule.line, taken.rule.column,
          paint(full_coverage ? Paint::error : Paint::warning, full_coverage ? "error" : "warning"), taken.rule.name);
  if (!file.tested.coverage_error.empty())
    say("  {} {}\n",
        paint(Paint::warning, "rule coverage is incomplete, because the policy failed during the measurement:"),
        indented(file.tested.coverage_error));
  for (const std::string& reason : file.tested.graph_breaks)
    say("  {} {}\n", paint(Paint::warning, "captured as several graphs; the script runs between them on every call:"),
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

Json to_json(const TestRun& run) {
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

/// Bytes of the UTF-8 character at `at`, 0 where there is none that XML 1.0 may hold.
size_t character_size(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) return first >= 0x20 || first == '\t' || first == '\n' || first == '\r' ? 1 : 0;
  const size_t size = first >= 0xF0 && first < 0xF5 ? 4 : first >= 0xE0 ? 3 : first >= 0xC2 ? 2 : 0;
  if (size == 0 || first >= 0xF5 || at + size > text.size()) return 0;
  uint32_t code = first & (0xFFu >> (size + 1));
  for (size_t i = 1; i < size; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(at + i) & 0x3Fu);
  }
  constexpr uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool allowed = code >= smallest[size] && code <= 0x10FFFF && !(code >= 0xD800 && code <= 0xDFFF) &&
                       code != 0xFFFE && code != 0xFFFF;
  return allowed ? size : 0;
}

/// As the value of an attribute or as text; what XML cannot hold becomes `?`.
std::string escaped(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    const size_t size = character_size(text, i);
    switch (size == 1 ? text[i] : '\0') {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\n':
        result += "&#10;";  // an attribute would lose it
        break;
      case '\r':
      case '\t':
        result += fmt::format("&#{};", static_cast<int>(text[i]));
        break;
      default:
        result += size == 0 ? "?" : std::string(text.substr(i, size));
    }
    i += size == 0 ? 1 : size;
  }
  return result;
}

std::string case_head(const std::string& path, const std::string& name, int line, double seconds) {
  return fmt::format("    <testcase classname=\"{}\" name=\"{}\" file=\"{}\" line=\"{}\" time=\"{:.6f}\"",
                     escaped(path), escaped(name), escaped(path), line, seconds);
}

std::string problem(const char* element, const std::string& message) {
  const std::string_view first_line = std::string_view(message).substr(0, message.find('\n'));
  return fmt::format(">\n      <{0} message=\"{1}\">{2}</{0}>\n    </testcase>\n", element, escaped(first_line),
                     escaped(message));
}

std::string uncovered_text(const TestedFile& file) {
  std::string text;
  for (const auto& taken : file.tested.rules)
    if (taken.samples.empty())
      text += fmt::format("{}:{}:{}: no test has a sample that {} takes\n", file.path, taken.rule.line,
                          taken.rule.column, taken.rule.name);
  return text;
}

std::string suite(const TestedFile& file, bool full_coverage) {
  const std::string uncovered = full_coverage ? uncovered_text(file) : "";
  const size_t broken = file.is_broken(), coverage = !uncovered.empty();
  std::string text = fmt::format(
      "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"0\" time=\"{:.6f}\">\n",
      escaped(file.path), file.tested.tests.size() + broken + coverage, file.failed() + coverage, broken, file.seconds);
  if (broken) text += case_head(file.path, "loads", file.error_line, file.seconds) + problem("error", file.error);
  for (const auto& test : file.tested.tests) {
    text += case_head(file.path, test.name, test.line, test.seconds);
    text += test.failure.empty() ? "/>\n" : problem("failure", test.failure);
  }
  if (coverage) text += case_head(file.path, "every rule takes a sample", 0, 0) + problem("failure", uncovered);
  return text + "  </testsuite>\n";
}

/// The form that CI systems read: a `testsuite` a file, a `testcase` a test; a file that cannot be loaded is an
/// `error`. Always well-formed XML 1.0, whatever the names of tests and the messages hold.
std::string to_junit(const TestRun& run) {
  std::string suites;
  size_t tests = 0, failures = 0, errors = 0;
  double seconds = 0;
  for (const TestedFile& file : run.files) {
    const size_t broken = file.is_broken(), coverage = run.full_coverage && !file.covered();
    suites += suite(file, run.full_coverage);
    tests += file.tested.tests.size() + broken + coverage;
    failures += file.failed() + coverage;
    errors += broken;
    seconds += file.seconds;
  }
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<testsuites name=\"triage test\" tests=\"{}\" failures=\"{}\" errors=\"{}\" time=\"{:.6f}\">\n{}</testsuites>\n",
      tests, failures, errors, seconds, suites);
}

TestedFile test_file(const std::string& path, const TestCommand& options) {
  TestedFile file;
  file.path = path;
  lua::TestOptions test_options;
  test_options.script.path = script_name(path);
  test_options.script.read_file = files_of(path);
  // What a policy prints belongs between the results only where a person reads them.
  test_options.script.print = prints_to(options.json ? stderr : stdout);
  test_options.script.limits = parse_limits(options.limits);
  test_options.backend = options.backend;
  test_options.batches = options.batches;
  give(test_options.script, options.given, c10::kCPU);
  test_options.give = [&options](Runtime& runtime) { define_given(runtime, options.given, c10::kCPU); };
  const auto start = std::chrono::steady_clock::now();
  try {
    file.tested = lua::run_policy_tests(read_source(path), test_options);
  } catch (const lua::rewriter::SyntaxError& error) {
    file.error = error.what();
    file.error_line = error.line;
  } catch (const Error& error) {
    file.error = error.what();
    file.error_line = error.source().line;
  } catch (const std::exception& error) {
    file.error = error.what();
  }
  file.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return file;
}

void write_junit(const std::string& path, const TestRun& run) {
  const std::string report = to_junit(run);
  files::OutputFile out(path);
  out.write(report.data(), report.size());
  out.commit();
}

}  // namespace

int run(const TestCommand& options) {
  check_backend(options.backend);
  TestRun run;
  run.full_coverage = options.full_coverage;
  const std::vector<std::string> files = with_files_of_folders(options.paths);
  for (const std::string& path : files) read_source(path);  // a wrong name is wrong use: nothing is tested then
  if (!options.junit.empty())
    for (const std::string& path : files) check_destination("--junit", options.junit, path);
  for (const std::string& path : files) {
    {
      Progress progress;
      progress.show(fmt::format("testing {} ({} of {}) ...", path, run.files.size() + 1, files.size()));
      run.files.push_back(test_file(path, options));
    }
    if (!options.json) print_tested(run.files.back(), options.full_coverage);
  }
  if (options.json)
    print_json(to_json(run));
  else
    print_summary(run);
  if (!options.junit.empty()) write_junit(options.junit, run);
  return run.ok() ? 0 : 1;
}

}  // namespace triage::cli
