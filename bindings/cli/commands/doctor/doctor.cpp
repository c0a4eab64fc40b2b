#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/cli/commands.h"
#include "bindings/cli/commands/doctor/bug_report.h"
#include "bindings/cli/commands/doctor/finding.h"
#include "bindings/cli/terminal.h"

namespace triage::cli {
namespace {

using Json = nlohmann::ordered_json;
using doctor::DoctorFinding;
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

using Painter = std::string (*)(Paint, std::string_view);
std::string unpainted(Paint, std::string_view text) { return std::string(text); }

std::string text_of(const DoctorFinding& finding, Painter painted) {
  constexpr size_t column = 23;
  std::string text = fmt::format("  {}  {:<11} {}\n",
                                 painted(colour_of(finding.severity), fmt::format("{:<7}", name_of(finding.severity))),
                                 finding.name, indented(finding.text, column));
  if (!finding.advice.empty())
    text +=
        fmt::format("{:{}}{} {}\n", "", column, painted(Paint::heading, "->"), indented(finding.advice, column + 3));
  return text;
}

Json to_json(const DoctorFinding& finding) {
  Json json = {{"name", finding.name}, {"severity", name_of(finding.severity)}, {"text", finding.text}};
  json["advice"] = finding.advice.empty() ? Json() : Json(finding.advice);
  json["facts"] = finding.facts.is_null() ? Json::object() : finding.facts;
  return json;
}

/// What fails in the check itself is a finding, too: the others still come.
DoctorFinding look(const char* name, DoctorFinding (*check)()) {
  try {
    return check();
  } catch (const std::exception& error) {
    return {name, Severity::error, fmt::format("the check failed: {}", error.what()), "report this output", {}};
  }
}

std::vector<DoctorFinding> look_at_all() {
  using namespace doctor;
  return {look("triage", check_triage),          look("LibTorch", check_torch),  look("BLAS", check_blas),
          look("OpenMP", check_openmp),          look("Lua", check_lua),         look("processor", check_processor),
          look("threads", check_threads),        look("watches", check_watches), look("GPU", check_gpu),
          look("environment", check_environment)};
}

std::string summary(const std::vector<DoctorFinding>& findings, Painter painted) {
  const auto count = [&](Severity severity) {
    return std::count_if(findings.begin(), findings.end(),
                         [&](const DoctorFinding& finding) { return finding.severity == severity; });
  };
  const auto errors = count(Severity::error), warnings = count(Severity::warning);
  const auto plural = [](auto n, const char* what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); };
  if (errors + warnings == 0) return painted(Paint::good, "nothing to do") + "\n";
  return painted(errors ? Paint::error : Paint::warning,
                 fmt::format("{}, {}; `->` says what to do", plural(errors, "error"), plural(warnings, "warning"))) +
         "\n";
}

std::string report_text(const std::vector<DoctorFinding>& findings, Painter painted) {
  std::string text;
  for (const DoctorFinding& finding : findings) text += text_of(finding, painted);
  return text + summary(findings, painted);
}

Json report_json(const std::vector<DoctorFinding>& findings, Severity worst) {
  Json list = Json::array();
  for (const DoctorFinding& finding : findings) list.push_back(to_json(finding));
  return {{"ok", worst < Severity::warning}, {"worst", name_of(worst)}, {"findings", list}};
}

/// What a bug report has: the findings first, and before them all what there is.
std::vector<doctor::Attachment> for_bug_report(const std::vector<DoctorFinding>& findings, Severity worst,
                                               std::vector<doctor::Attachment> collected) {
  constexpr const char* private_parts =
      "\nLook at these files before you send them. A capsule holds the inputs of the call and the source of the "
      "function\n"
      "(TRIAGE_REPLAY_MASK leaves out values); logs name policies, files and hosts; doctor.txt has the variables that\n"
      "triage and LibTorch read. (The file `version` belongs to the writer of the archive.)\n";
  collected.insert(collected.begin(),
                   {{"doctor.txt", "", "what triage doctor found", report_text(findings, unpainted), ""},
                    {"doctor.json", "", "the same for programs",
                     report_json(findings, worst).dump(1, ' ', true, Json::error_handler_t::replace) + "\n", ""}});
  const std::string contents = "A bug report of triage.\n\n" + doctor::contents_text(collected) + private_parts;
  collected.insert(collected.begin(), {"README.txt", "", "this list", contents, ""});
  return collected;
}

Json contents_json(const std::vector<doctor::Attachment>& attachments) {
  Json json = Json::array();
  for (const doctor::Attachment& one : attachments)
    json.push_back({{"name", one.name},
                    {"bytes", one.content.size()},
                    {"from", one.from.empty() ? Json() : Json(one.from)},
                    {"says", one.says},
                    {"left_out", one.missing.empty() ? Json() : Json(one.missing)}});
  return json;
}

}  // namespace

int run(const DoctorCommand& options) {
  std::vector<doctor::Attachment> attachments;
  std::optional<files::OutputFile> bundle;
  if (!options.bundle.empty()) {
    bundle.emplace(options.bundle);  // where it cannot be written, that is told before the doctor takes its time
    attachments = doctor::collect_attachments();
  }
  const std::vector<DoctorFinding> findings = look_at_all();
  Severity worst = Severity::fine;
  for (const DoctorFinding& finding : findings) worst = std::max(worst, finding.severity);
  if (bundle) {
    attachments = for_bug_report(findings, worst, std::move(attachments));
    doctor::write_archive(*bundle, attachments);
  }
  if (options.json) {
    Json report = report_json(findings, worst);
    if (bundle) report["bundle"] = {{"file", options.bundle}, {"content", contents_json(attachments)}};
    print_json(report);
  } else {
    say("{}", PreformattedText{report_text(findings, paint)});
    if (bundle)
      say("\n{} {}\n{}look at it before you send it: a capsule holds the inputs of the call\n",
          paint(Paint::heading, "bug report"), options.bundle, PreformattedText{doctor::contents_text(attachments)});
  }
  return worst == Severity::error ? does_not_work : worst == Severity::warning ? works_worse : 0;
}

}  // namespace triage::cli
