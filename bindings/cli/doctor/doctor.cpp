#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <string_view>
#include <vector>

#include "bindings/cli/commands.h"
#include "bindings/cli/doctor/finding.h"
#include "bindings/cli/terminal.h"

namespace triage::cli {
namespace {

using Json = nlohmann::ordered_json;
using doctor::Finding;
using doctor::Severity;

constexpr int works_worse = 1, does_not_work = 3;

const char* name_of(Severity severity) {
  switch (severity) {
    case Severity::fine:
      return "ok";
    case Severity::note:
      return "note";
    case Severity::warning:
      return "warning";
    case Severity::error:
      return "error";
  }
  return "";
}

Paint colour_of(Severity severity) {
  switch (severity) {
    case Severity::warning:
      return Paint::warning;
    case Severity::error:
      return Paint::error;
    case Severity::note:
      return Paint::faint;
    case Severity::fine:
      break;
  }
  return Paint::good;
}

/// Lines after the first stand below the first one's text.
std::string indented(std::string text, size_t columns) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1 + columns))
    text.insert(at + 1, std::string(columns, ' '));
  return text;
}

void print(const Finding& finding) {
  constexpr size_t column = 23;
  say("  {}  {:<11} {}\n", paint(colour_of(finding.severity), fmt::format("{:<7}", name_of(finding.severity))),
      finding.name, indented(finding.text, column));
  if (!finding.advice.empty())
    say("{:{}}{} {}\n", "", column, paint(Paint::heading, "->"), indented(finding.advice, column + 3));
}

Json to_json(const Finding& finding) {
  Json json = {{"name", finding.name}, {"severity", name_of(finding.severity)}, {"text", finding.text}};
  json["advice"] = finding.advice.empty() ? Json() : Json(finding.advice);
  json["facts"] = finding.facts.is_null() ? Json::object() : finding.facts;
  return json;
}

/// What fails in the check itself is a finding, too: the others still come.
Finding look(const char* name, Finding (*check)()) {
  try {
    return check();
  } catch (const std::exception& error) {
    return {name, Severity::error, fmt::format("the check failed: {}", error.what()), "report this output", {}};
  }
}

std::vector<Finding> look_at_all() {
  using namespace doctor;
  std::vector<Finding> findings = {look("triage", check_triage),       look("LibTorch", check_torch),
                                   look("OpenMP", check_openmp),       look("Lua", check_lua),
                                   look("processor", check_processor), look("threads", check_threads)};
  Progress progress;
  progress.show("compiling a kernel ...");
  try {
    auto kernels = check_kernels();
    std::move(kernels.begin(), kernels.end(), std::back_inserter(findings));
  } catch (const std::exception& error) {
    findings.push_back(
        {"kernels", Severity::error, fmt::format("the check failed: {}", error.what()), "report this output", {}});
  }
  for (const Finding& finding :
       {look("watches", check_watches), look("GPU", check_gpu), look("environment", check_environment)})
    findings.push_back(finding);
  return findings;
}

void print_summary(const std::vector<Finding>& findings) {
  const auto count = [&](Severity severity) {
    return std::count_if(findings.begin(), findings.end(),
                         [&](const Finding& finding) { return finding.severity == severity; });
  };
  const auto errors = count(Severity::error), warnings = count(Severity::warning);
  const auto plural = [](auto n, const char* what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); };
  if (errors + warnings == 0)
    say("{}\n", paint(Paint::good, "nothing to do"));
  else
    say("{}\n",
        paint(errors ? Paint::error : Paint::warning,
              fmt::format("{}, {}; `->` says what to do", plural(errors, "error"), plural(warnings, "warning"))));
}

}  // namespace

int run(const DoctorCommand& options) {
  const std::vector<Finding> findings = look_at_all();
  Severity worst = Severity::fine;
  for (const Finding& finding : findings) worst = std::max(worst, finding.severity);
  if (options.json) {
    Json list = Json::array();
    for (const Finding& finding : findings) list.push_back(to_json(finding));
    print_json({{"ok", worst < Severity::warning}, {"worst", name_of(worst)}, {"findings", list}});
  } else {
    for (const Finding& finding : findings) print(finding);
    print_summary(findings);
  }
  return worst == Severity::error ? does_not_work : worst == Severity::warning ? works_worse : 0;
}

}  // namespace triage::cli
