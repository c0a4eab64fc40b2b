#include <fmt/format.h>

#include <cstdint>
#include <string_view>

#include "bindings/cli/testing/report.h"

namespace triage::cli {
namespace {

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

}  // namespace

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

}  // namespace triage::cli
