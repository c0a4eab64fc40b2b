#include "bindings/cli/commands/bench/bench_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "bindings/cli/terminal.h"

namespace triage::cli {
namespace {

using Json = nlohmann::ordered_json;

const char* to_string(Bound bound) {
  return bound == Bound::overhead ? "overhead" : bound == Bound::memory ? "memory" : "compute";
}

constexpr double near_the_limit =
    2;  // times the limit: data that comes and goes is moved, whatever is computed meanwhile

std::string micros(double time) { return time >= 1000 ? fmt::format("{:.0f}", time) : fmt::format("{:.3g}", time); }

std::string rows_text(int64_t rows) { return fmt::format("{} {}", rows, rows == 1 ? "row" : "rows"); }

/// "1 to 32 rows": the batches `from` to `to`.
std::string stretch(const BenchReport& report, size_t from, size_t to) {
  const auto rows = [&](size_t i) { return report.batches[i].rows; };
  return from == to ? rows_text(rows(from)) : fmt::format("{} to {}", rows(from), rows_text(rows(to)));
}

/// With the figures of its last batch.
std::string reason(const BenchReport& report, const BatchTimes& last) {
  if (last.bound == Bound::overhead)
    return fmt::format("overhead ({} us at {}; the call itself takes {} us of it)", micros(last.fused),
                       rows_text(last.rows), micros(report.call));
  return fmt::format("{} ({} us at {} is {:.1f} times the {} of the data, {} us)", to_string(last.bound),
                     micros(last.fused), rows_text(last.rows), last.fused / report.limit(last), report.limit_name(),
                     micros(report.limit(last)));
}

Json measured(double time) { return time > 0 ? Json(time) : Json(); }

Json to_json(const BenchReport& report, const BatchTimes& batch) {
  return {{"rows", batch.rows},
          {"bytes", batch.bytes},
          {"read_us", batch.read},
          {"copy_us", batch.copy},
          {"script_us", batch.script},
          {"eager_us", batch.eager},
          {"fused_us", batch.fused},
          {"pays", report.pays(batch)},
          {"limit", report.limit_name()},
          {"ratio", batch.fused / report.limit(batch)},
          {"bound", to_string(batch.bound)}};
}

/// What bounds each batch. Where the call itself is half of the time or more, it is that; else what is above it tells,
/// against the limit.
void find_bounds(BenchReport& report) {
  for (BatchTimes& batch : report.batches) {
    if (2 * report.call >= batch.fused)
      batch.bound = Bound::overhead;
    else
      batch.bound = batch.fused - report.call <= near_the_limit * report.limit(batch) ? Bound::memory : Bound::compute;
  }
}

/// One sentence for each stretch of batch sizes with the same bound, with the figures that say so.
std::string closing_words(const BenchReport& report) {
  std::vector<std::string> parts;
  for (size_t from = 0; from < report.batches.size();) {
    size_t to = from;
    while (to + 1 < report.batches.size() && report.batches[to + 1].bound == report.batches[from].bound) ++to;
    parts.push_back(fmt::format("{}: {}", stretch(report, from, to), reason(report, report.batches[to])));
    from = to + 1;
  }
  return fmt::format("Bottleneck of the fused code: {}.", fmt::join(parts, "; "));
}

/// The first batch sizes for which a warm call of `fused` takes as long as the script or longer; empty where there is
/// none.
std::string does_not_pay(const BenchReport& report) {
  std::vector<std::string> batches;
  for (const BatchTimes& batch : report.batches)
    if (!report.pays(batch))
      batches.push_back(fmt::format("{} ({} us, the script {} us)", rows_text(batch.rows), micros(batch.fused),
                                    micros(batch.script)));
  if (batches.empty()) return "";
  return fmt::format("Capturing does not pay at {}: the script is as fast there (stance force_eager runs it).",
                     fmt::join(batches, ", "));
}

/// Whether, and after how many calls, the first call is paid for.
std::string pay_off_text(const BenchReport& report) {
  std::string text = does_not_pay(report);
  if (report.pays_after > 0)
    text +=
        fmt::format("{}Capturing pays at {} after {:.0f} calls: the first one takes {:.1f} ms longer than the script.",
                    text.empty() ? "" : "\n", rows_text(report.chosen_rows), report.pays_after,
                    std::max(0.0, report.first_ms - report.script_ms));
  return text;
}

/// "repair.lua:3"; empty for what stands for several lines, or none.
Source single_line(const std::string& source) {
  const size_t colon = source.rfind(':');
  const bool is_one = colon != std::string::npos && source.find('-', colon) == std::string::npos;
  return is_one ? Source{source.substr(0, colon), std::atoi(source.c_str() + colon + 1)} : Source{};
}

/// Of the policy's own file; empty of others.
std::string source_line(const BenchReport& report, const Source& line) {
  const auto number = static_cast<size_t>(line.line);
  if (line.file != report.file || number == 0 || number > report.source.size()) return "";
  const std::string& text = report.source[number - 1];
  const size_t first = text.find_first_not_of(" \t");
  return first == std::string::npos ? "" : text.substr(first);
}

constexpr size_t most_costs = 5, most_captured_lines = 12;
constexpr double least_share = 0.01;

void print_costs(const BenchReport& report) {
  const auto begins = [&](const char* what) {
    say("\n{}\n",
        paint(Paint::faint, fmt::format("{} at {}: share of a call, us", what, rows_text(report.chosen_rows))));
  };
  const auto is_shown = [](const std::vector<bench::ProfileEntry>& costs, size_t i) {
    return i == 0 || (i < most_costs && costs[i].share >= least_share);
  };
  if (!report.lines.empty()) begins("lines of the script, not captured,");
  for (size_t i = 0; i < report.lines.size() && is_shown(report.lines, i); ++i) {
    const bench::ProfileEntry& cost = report.lines[i];
    say("{:>5.0f} % {:>8}  {}:{}  {}\n", 100 * cost.share, micros(cost.micros), cost.line.file, cost.line.line,
        source_line(report, cost.line));
  }
  const std::vector<fused::LineTime> captured = report.captured_lines();
  if (!captured.empty()) begins("lines of the script, captured,");
  for (size_t i = 0; i < captured.size(); ++i) {
    const fused::LineTime& line = captured[i];
    if (i >= most_captured_lines && i + 1 < captured.size()) continue;
    const std::string text = line.source.empty()
                                 ? "no line: guards, checks, memory, reading and writing"
                                 : fmt::format("{}  {}", line.source, source_line(report, single_line(line.source)));
    say("{:>5.0f} % {:>8}  {}\n", 100 * line.micros / report.chosen_micros(), micros(line.micros), text);
  }
  if (!report.parts.empty()) begins("parts of the fused code");
  for (size_t i = 0; i < report.parts.size() && is_shown(report.parts, i); ++i) {
    const bench::ProfileEntry& cost = report.parts[i];
    say("{:>5.0f} % {:>8}  {}\n", 100 * cost.share, micros(cost.micros), cost.name);
  }
}

Json to_json(const BenchReport& report, const std::vector<bench::ProfileEntry>& costs) {
  Json all = Json::array();
  for (const bench::ProfileEntry& cost : costs) {
    Json one = Json::object();
    if (cost.name.empty())
      one = {{"file", cost.line.file}, {"line", cost.line.line}, {"text", source_line(report, cost.line)}};
    else
      one = {{"name", cost.name}};
    one["us"] = cost.micros;
    one["share"] = cost.share;
    all.push_back(std::move(one));
  }
  return all;
}

/// Each step of each tape, and the calls between them.
void print_steps(const BenchReport& report) {
  const double whole = report.chosen_micros();
  for (const fused::GraphTime& graph : report.steps)
    for (const fused::PartTime& part : graph.parts) {
      say("\n{}\n", paint(Paint::faint, fmt::format("{} us, {:.0f} % of a call: {}", micros(part.micros),
                                                    100 * part.micros / whole, part.label)));
      say("{}", PreformattedText{fused::text_of(part, whole)});
    }
}

Json to_json(const std::optional<Profile>& profile) {
  if (!profile) return {};
  return {{"file", profile->file},
          {"backend", profile->backend},
          {"rows", profile->rows},
          {"calls", profile->calls},
          {"by", profile->by}};
}

}  // namespace

double BenchReport::chosen_micros() const {
  double micros = micros_of(steps);
  for (const BatchTimes& batch : batches)
    if (batch.rows == chosen_rows) micros = std::max(micros, batch.fused);
  return micros;
}

std::vector<fused::LineTime> BenchReport::captured_lines() const {
  if (steps.empty()) return {};
  std::vector<fused::LineTime> lines = fused::times_of_lines(steps);
  lines.back().micros += chosen_micros() - micros_of(steps);
  return lines;
}

void draw_conclusions(BenchReport& report) {
  find_bounds(report);
  for (const BatchTimes& batch : report.batches)
    if (batch.rows == report.chosen_rows && report.pays(batch))
      report.pays_after =
          std::ceil(std::max(1.0, 1000 * (report.first_ms - report.script_ms) / (batch.script - batch.fused)));
}

void print_bench(const BenchReport& report) {
  say("{}\n", paint(Paint::heading, report.policy));
  for (const std::string& input : report.inputs) say("  input     {}\n", input);
  say("  from      {}\n  graphs    {}, {} graph break{}\n  threads   {}\n\n", report.from, report.graphs,
      report.graph_breaks.size(), report.graph_breaks.size() == 1 ? "" : "s", report.threads);
  say("{}\n", paint(Paint::faint,
                    fmt::format("{:>9} {:>10} {:>10} {:>10} {:>10} {:>10}  {:>14}  bound by", "rows, us:", "read",
                                "copy", "script", "eager", "fused", fmt::format("fused / {}", report.limit_name()))));
  for (const BatchTimes& batch : report.batches)
    say("{:>9} {:>10} {:>10} {:>10} {:>10} {:>10}  {:>14.2f}  {}\n", batch.rows, micros(batch.read), micros(batch.copy),
        micros(batch.script), micros(batch.eager), micros(batch.fused), batch.fused / report.limit(batch),
        to_string(batch.bound));
  say("\nfirst call {:.1f} ms (the script alone {:.1f} ms)\n{}\n", report.first_ms, report.script_ms,
      closing_words(report));
  if (const std::string text = pay_off_text(report); !text.empty()) say("{}\n", text);
  if (!report.slow_blas.empty()) say("{} {}\n", paint(Paint::warning, "slow BLAS:"), report.slow_blas);
  for (const std::string& reason : report.graph_breaks) say("{} {}\n", paint(Paint::warning, "not one graph:"), reason);
  print_costs(report);
  if (report.profile && report.profile->backend == "fused") print_steps(report);
  if (const auto& profile = report.profile)
    say("\ntrace of {} calls of {} rows on {}: {} (by {}; open it at https://ui.perfetto.dev)\n", profile->calls,
        profile->rows, profile->backend, profile->file, profile->by);
}

nlohmann::ordered_json to_json(const BenchReport& report) {
  Json batches = Json::array();
  for (const BatchTimes& batch : report.batches) batches.push_back(to_json(report, batch));
  return {{"policy", report.policy},
          {"inputs", report.inputs},
          {"from", report.from},
          {"threads", report.threads},
          {"graphs", report.graphs},
          {"graph_breaks", report.graph_breaks},
          {"slow_blas", report.slow_blas.empty() ? Json() : Json(report.slow_blas)},
          {"batches", batches},
          {"call_us", report.call},
          {"first_call", {{"script_ms", report.script_ms}, {"first_ms", report.first_ms}}},
          {"bounds", closing_words(report)},
          {"pays_after",
           {{"rows", report.chosen_rows}, {"calls", measured(report.pays_after)}, {"text", pay_off_text(report)}}},
          {"costs",
           {{"rows", report.chosen_rows},
            {"script_lines", to_json(report, report.lines)},
            {"fused_parts", to_json(report, report.parts)},
            {"captured", to_json(report.steps, report.captured_lines(), report.chosen_micros())}}},
          {"profile", to_json(report.profile)}};
}

}  // namespace triage::cli
