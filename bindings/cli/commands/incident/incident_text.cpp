#include "bindings/cli/commands/incident/incident_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/cli/commands/decisions/decision_files.h"
#include "bindings/cli/commands/incident/incident_report.h"
#include "bindings/cli/terminal.h"
#include "runtime/messages/printable.h"

namespace triage::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t most_changes = 40, most_diff_lines = 120, most_rows = 10, most_ids = 10'000;
constexpr size_t most_columns = 24;  // of a row over time

uint64_t number(const Json& object, const char* name) { return object[name].get<uint64_t>(); }
std::string text(const Json& object, const char* name) { return object[name].get<std::string>(); }

/// "▁▂▇": one column for each stretch of time; "." where there was nothing.
std::string sparkline(const std::vector<uint64_t>& counts, uint64_t most) {
  static constexpr const char* heights[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::string line;
  for (const uint64_t count : counts) line += count == 0 ? "." : heights[std::min<uint64_t>(7, count * 8 / (most + 1))];
  return line;
}

/// The counts of one series, in at most so many stretches.
std::vector<uint64_t> stretches(const Json& counts) {
  const size_t each = (counts.size() + most_columns - 1) / most_columns;
  std::vector<uint64_t> sums(each == 0 ? 0 : (counts.size() + each - 1) / each);
  for (size_t i = 0; i < counts.size(); ++i) sums[i / each] += counts[i].get<uint64_t>();
  return sums;
}

/// Of the series that has this name; empty where there is none.
std::string over_time(const Json& report, const char* kind, const std::string& name) {
  const Json& all = report["over_time"];
  if (all.is_null()) return "";
  uint64_t most = 0;
  std::vector<uint64_t> found;
  for (const Json& series : all[kind]["series"]) {
    const std::vector<uint64_t> counts = stretches(series["counts"]);
    for (const uint64_t count : counts) most = std::max(most, count);
    if (series["location"] == name) found = counts;
  }
  return sparkline(found, most);
}

/// Columns as wide as their widest cell; all but the first and the last one to the right.
void print_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows[0].size());
  const auto width = [](const std::string& cell) {
    return static_cast<size_t>(std::count_if(cell.begin(), cell.end(), [](char c) { return (c & 0xC0) != 0x80; }));
  };
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  for (const auto& row : rows) {
    std::string line = "   ";
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - width(row[i]), ' ');
      const bool is_left = i == 0 || i + 1 == row.size();
      line += " " + std::string(i == 0 ? 0 : 1, ' ') + (is_left ? row[i] + (i == 0 ? space : "") : space + row[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    say("{}\n", &row == &rows[0] ? paint(Paint::faint, line) : line);
  }
}

/// A line that begins with "--" may have gone, too: a head is two lines.
Paint paint_of_diff(const Json& diff, size_t at) {
  const auto begins = [&](size_t line, const char* with) {
    return line < diff.size() && diff[line].get_ref<const std::string&>().starts_with(with);
  };
  const bool is_head = (begins(at, "--- ") && begins(at + 1, "+++ ")) || (begins(at, "+++ ") && begins(at - 1, "--- "));
  if (is_head) return Paint::faint;
  return begins(at, "-") ? Paint::error : begins(at, "+") ? Paint::good : Paint::faint;
}

void print_change(const Json& change) {
  say("  {}  {}\n", text(change, "time"), messages::one_line(text(change, "text")));
  if (change.contains("no_diff")) say("    {}\n", messages::one_line(text(change, "no_diff")));
  if (!change.contains("diff")) return;
  const Json& diff = change["diff"];
  for (size_t i = 0; i < std::min(diff.size(), most_diff_lines); ++i) {
    say("    {}\n", paint(paint_of_diff(diff, i), diff[i].get<std::string>()));
  }
  if (diff.size() > most_diff_lines)
    say("    {}\n",
        paint(Paint::faint, fmt::format("and {} more lines; --json has them", diff.size() - most_diff_lines)));
}

void print_changes(const Json& report) {
  say("{}\n", paint(Paint::heading, "What changed"));
  const Json& changes = report["changes"];
  if (changes.empty()) say("  nothing that the log tells of\n");
  const size_t begin = changes.size() - std::min(changes.size(), most_changes);
  const uint64_t before = begin + number(report, "changes_left_out");
  if (before > 0) say("  {}\n", paint(Paint::faint, counted(before, "earlier change") + "; --json has more of them"));
  for (size_t i = begin; i < changes.size(); ++i) print_change(changes[i]);
}

std::string share_text(const Json& version) { return version["share"].is_null() ? "" : percent(version["share"]); }

void print_versions(const Json& report) {
  std::vector<std::vector<std::string>> rows = {
      {"version", "samples", "flagged", "repaired", "failed", "share", "flagged over time"}};
  bool some_uncounted = false;
  for (const Json& version : report["versions"]) {
    if (number(version, "samples") == 0 && !version["live"]) continue;
    const bool is_counted = version["of"] == "all calls" || number(version, "samples") == 0;
    some_uncounted |= !is_counted;
    rows.push_back({messages::one_line(text(version, "title")) + (version["live"] ? ", live" : ""),
                    fmt::format("{}{}", number(version, "samples"), is_counted ? "" : "*"),
                    std::to_string(number(version, "flagged")), std::to_string(number(version, "repaired")),
                    std::to_string(number(version, "failed_samples")), share_text(version),
                    over_time(report, "versions", text(version, "title"))});
  }
  if (rows.size() > 1) print_table(rows);
  if (some_uncounted)
    say("    {}\n", paint(Paint::faint, "* only of the calls in the log, which flagged a sample or failed"));
}

/// The first of `count` lines, below a head.
void print_first(const std::vector<std::vector<std::string>>& rows, size_t count) {
  print_table(rows);
  const size_t shown = rows.size() - 1;
  if (count > shown) say("    {}\n", paint(Paint::faint, fmt::format("and {} more; --json has them", count - shown)));
}

void print_counts(const Json& report, const char* kind, const char* name) {
  const Json& counts = report[kind];
  if (counts.empty()) return;
  std::vector<std::vector<std::string>> rows = {{name, "samples", "share", "over time"}};
  const auto all = static_cast<double>(std::max<uint64_t>(1, number(report["affected"], "samples")));
  for (size_t i = 0; i < std::min(counts.size(), most_rows); ++i) {
    const std::string key = text(counts[i], name);
    const uint64_t samples = number(counts[i], "samples");
    rows.push_back({messages::one_line(key), std::to_string(samples), percent(static_cast<double>(samples) / all),
                    over_time(report, kind, key)});
  }
  print_first(rows, counts.size());
}

void print_affected(const Json& report) {
  const Json& affected = report["affected"];
  say("{}\n", paint(Paint::heading, "Who is affected"));
  std::string line =
      fmt::format("{} flagged in {}, {} of them repaired", counted(number(affected, "samples"), "sample"),
                  counted(number(affected, "flagged_calls"), "call"), number(affected, "repaired"));
  if (const uint64_t failed = number(affected, "failed_calls"); failed > 0)
    line += fmt::format("; {} failed", counted(failed, "call"));
  say("  {}\n", line);
  print_versions(report);
  print_counts(report, "locations", "location");
  print_counts(report, "codes", "code");
}

void print_ids(const Json& report) {
  if (!report.contains("samples") || report["samples"].empty()) return;
  std::vector<std::vector<std::string>> rows = {{"sample", "version", "done", "errors"}};
  const Json& samples = report["samples"];
  for (size_t i = 0; i < std::min(samples.size(), most_ids); ++i) {
    const Json& sample = samples[i];
    std::string name = text(sample, "sample_id");
    if (name.empty()) {
      const std::string decision = text(sample, "decision_id");
      name = fmt::format("{} #{}", decision.empty() ? text(sample, "time") : decision, number(sample, "sample"));
    }
    rows.push_back({messages::one_line(name), messages::one_line(text(sample, "title")), text(sample, "done"),
                    messages::one_line(text(sample, "errors"))});
  }
  print_first(rows, samples.size());
}

void print_advice(const Json& report) {
  const Json& advice = report["advice"];
  say("{}\n", paint(Paint::heading, "What to do"));
  say("  {}{}\n", messages::one_line(text(advice, "text")), advice["commands"].empty() ? "" : ":");
  for (const Json& command : advice["commands"]) say("    {}\n", messages::one_line(command.get<std::string>()));
}

void print_log(const Json& report) {
  std::string line = fmt::format("{}, {}", counted(number(report, "decisions"), "decision"),
                                 counted(number(report, "events"), "event"));
  if (!report["first"].is_null()) line += fmt::format(", {} to {}", text(report, "first"), text(report, "last"));
  say("{}\n", paint(Paint::heading, line));
  if (const uint64_t dropped = number(report, "dropped"); dropped > 0)
    say("  {} not in the log: too many waited\n", counted(dropped, "line"));
  for (const Json& damaged : report["damaged"])
    say("  {}: {} that could not be read\n", messages::one_line(text(damaged, "file")),
        counted(number(damaged, "lines"), "line"));
  for (const Json& note : report["notes"]) say("  {}\n", messages::one_line(note.get<std::string>()));
}

}  // namespace

void print_incident(const Json& report, const std::string& why_nothing) {
  print_log(report);
  if (!why_nothing.empty()) return say("  {}\n", messages::one_line(why_nothing));
  for (const Json& policy : report["policies"]) {
    std::string title = "policy " + text(policy, "policy");
    if (!policy["bundle"].is_null()) title += fmt::format(" of bundle '{}'", text(policy, "bundle"));
    if (!text(policy, "path").empty()) title += fmt::format(", {}", text(policy, "path"));
    say("\n{}\n", paint(Paint::heading, messages::one_line(title)));
    print_changes(policy);
    print_affected(policy);
    print_ids(policy);
    print_advice(policy);
  }
}

}  // namespace triage::cli
