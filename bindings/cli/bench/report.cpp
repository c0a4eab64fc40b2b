#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bindings/cli/bench/bench.h"
#include "bindings/cli/terminal.h"

namespace triage::cli {
namespace {

using Json = nlohmann::ordered_json;

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
    return fmt::format("overhead (of {} us at {}, {} us are the call itself)", micros(last.fused), rows_text(last.rows),
                       micros(report.call));
  return fmt::format("{} ({} us at {} is {:.1f} times the {} of the data, {} us)", to_string(last.bound),
                     micros(last.fused), rows_text(last.rows), last.fused / report.limit(last), report.limit_name(),
                     micros(report.limit(last)));
}

Json to_json(const BenchReport& report, const BatchTimes& batch) {
  return {{"rows", batch.rows},
          {"bytes", batch.bytes},
          {"read_us", batch.read},
          {"copy_us", batch.copy},
          {"script_us", batch.script},
          {"eager_us", batch.eager},
          {"fused_us", batch.fused},
          {"limit", report.limit_name()},
          {"ratio", batch.fused / report.limit(batch)},
          {"bound", to_string(batch.bound)}};
}

}  // namespace

const char* to_string(Bound bound) {
  return bound == Bound::overhead ? "overhead" : bound == Bound::memory ? "memory" : "compute";
}

void find_bounds(BenchReport& report) {
  for (BatchTimes& batch : report.batches) {
    if (2 * report.call >= batch.fused)
      batch.bound = Bound::overhead;
    else
      batch.bound = batch.fused - report.call <= near_the_limit * report.limit(batch) ? Bound::memory : Bound::compute;
  }
}

std::string closing_words(const BenchReport& report) {
  std::vector<std::string> parts;
  for (size_t from = 0; from < report.batches.size();) {
    size_t to = from;
    while (to + 1 < report.batches.size() && report.batches[to + 1].bound == report.batches[from].bound) ++to;
    parts.push_back(fmt::format("{}: {}", stretch(report, from, to), reason(report, report.batches[to])));
    from = to + 1;
  }
  return fmt::format("What bounds it on fused: {}.", fmt::join(parts, "; "));
}

void print_bench(const BenchReport& report) {
  say("{}\n", paint(Paint::heading, report.policy));
  for (const std::string& input : report.inputs) say("  input     {}\n", input);
  say("  from      {}\n  graphs    {}, {} graph break{}\n  threads   {}\n\n", report.from, report.graphs,
      report.graph_breaks.size(), report.graph_breaks.size() == 1 ? "" : "s", report.threads);
  say("{}\n", paint(Paint::faint,
                    fmt::format("{:>9} {:>10} {:>10} {:>10} {:>10} {:>10}  {:>12}  bound by", "rows, us:", "read",
                                "copy", "script", "eager", "fused", fmt::format("fused / {}", report.limit_name()))));
  for (const BatchTimes& batch : report.batches)
    say("{:>9} {:>10} {:>10} {:>10} {:>10} {:>10}  {:>12.2f}  {}\n", batch.rows, micros(batch.read), micros(batch.copy),
        micros(batch.script), micros(batch.eager), micros(batch.fused), batch.fused / report.limit(batch),
        to_string(batch.bound));
  say("\nfirst call {:.1f} ms (the script alone {:.1f} ms); fused code ready {:.0f} ms after it began\n{}\n",
      report.first_ms, report.script_ms, report.ready_ms, closing_words(report));
  for (const std::string& reason : report.graph_breaks) say("{} {}\n", paint(Paint::warning, "not one graph:"), reason);
}

Json to_json(const BenchReport& report) {
  Json batches = Json::array();
  for (const BatchTimes& batch : report.batches) batches.push_back(to_json(report, batch));
  return {
      {"policy", report.policy},
      {"inputs", report.inputs},
      {"from", report.from},
      {"threads", report.threads},
      {"graphs", report.graphs},
      {"graph_breaks", report.graph_breaks},
      {"batches", batches},
      {"call_us", report.call},
      {"first_call", {{"script_ms", report.script_ms}, {"first_ms", report.first_ms}, {"ready_ms", report.ready_ms}}},
      {"bounds", closing_words(report)}};
}

}  // namespace triage::cli
