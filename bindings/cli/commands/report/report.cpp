// `triage report`: what traces tell, as one page for a person.
#include "bindings/cli/commands/report/report_data.h"

#include <fmt/format.h>
#include <triage/error.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "bindings/cli/commands.h"
#include "bindings/cli/commands/report/page.h"
#include "bindings/cli/commands/report/trace_reader.h"
#include "bindings/cli/terminal.h"
#include "runtime/files/disk.h"

namespace triage::cli {
namespace {

/// All that can be read. A file that is no trace is told, and is an error where there is no other.
void read_all(const std::vector<std::string>& files, ReportData& data, SkippedLines& skipped) {
  std::optional<FileError> failure;
  size_t read = 0;
  for (const std::string& file : files) {
    try {
      read_trace(
          file, [&](const ReportData::Event& event) { data.add(event); }, skipped);
      ++read;
    } catch (const FileError& error) {
      if (failure) say(stderr, "triage report: {}\n", failure->what());
      failure = error;
    }
  }
  if (!failure) return;
  if (read == 0) throw FileError(*failure);
  say(stderr, "triage report: {}\n", failure->what());
}

std::string counted(const ReportData::Json& count, const char* what) {
  const auto number = count.get<int64_t>();
  return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
}

void write_page(const std::string& path, const std::string& page) {
  files::OutputFile file(path);
  file.write(page.data(), page.size());
  file.commit();
}

}  // namespace

int run(const ReportCommand& options) {
  SkippedLines skipped;
  ReportData data(skipped);
  read_all(trace_files(options.traces), data, skipped);
  const std::string page = page_with("triage report", "page.js", data.page());
  write_page(options.output, page);
  ReportData::Json summary = data.summary();
  if (options.json) {
    summary["page"] = options.output;
    summary["bytes"] = page.size();
    print_json(summary);
    return 0;
  }
  say("{}: {}, {}, {}, {}\n", options.output, counted(summary["functions"], "function"),
      counted(summary["graphs"], "graph"), counted(summary["breaks"], "break"),
      counted(summary["recompiles"], "recompile"));
  if (skipped.damaged > 0) say("left out: {} that could not be read\n", counted(skipped.damaged, "line"));
  if (skipped.too_long > 0) say("left out: {} that no triage writes, too long\n", counted(skipped.too_long, "line"));
  if (skipped.malformed > 0) say("left out: {} with malformed fields\n", counted(skipped.malformed, "event"));
  if (skipped.left_out > 0) say("left out: {} that the page has no room for\n", counted(skipped.left_out, "event"));
  return 0;
}

}  // namespace triage::cli
