#include "runtime/backends/fused/parts/part_times.h"

#include "runtime/messages/fork_safe_mutex.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace triage::fused {
namespace {

/// So many calls are timed for the trace and the debug folder.
constexpr int64_t reported_calls = 8;

/// The timers of graphs that were called while calls are timed. Never destroyed.
struct Timers {
  messages::ForkSafeMutex mutex;
  std::vector<const PartTimer*> list;
};
Timers& timers() {
  static Timers& all = *new Timers;
  return all;
}

bool reports() { return messages::trace_on() || messages::wants_debug_file(messages::DebugFile::step_times); }

double sum_of(const std::vector<double>& times) { return std::accumulate(times.begin(), times.end(), 0.0); }

std::string columns(double micros, double whole) {
  return fmt::format("{:>8.3g} {:>5.1f} %", micros, whole > 0 ? 100 * micros / whole : 0);
}

}  // namespace

std::vector<LineTime> times_of_lines(const std::vector<GraphTime>& graphs) {
  std::map<std::string, double> times;
  double rest = 0;
  const auto add = [&](const std::string& source, double micros) {
    if (source.empty()) return;
    times[source] += micros;
    rest -= micros;
  };
  for (const GraphTime& graph : graphs) {
    rest += graph.micros;
    for (const PartTime& part : graph.parts) {
      if (part.listing.empty()) add(part.source, part.micros);
      for (const ListedLine& line : part.listing)
        if (line.step >= 0) add(line.source, part.steps[static_cast<size_t>(line.step)]);
    }
  }
  std::vector<LineTime> lines;
  for (const auto& [source, micros] : times) lines.push_back({source, micros});
  std::stable_sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) { return a.micros > b.micros; });
  lines.push_back({"", std::max(0.0, rest)});
  return lines;
}

std::string text_of(const PartTime& part, double whole) {
  std::string text;
  for (const ListedLine& line : part.listing) {
    const std::string time = line.step < 0 ? "" : columns(part.steps[static_cast<size_t>(line.step)], whole);
    text += fmt::format("{:16} {}\n", time, line.text);
  }
  return text;
}

std::string lines_text(const std::vector<LineTime>& lines, double whole) {
  std::string text;
  for (const LineTime& line : lines)
    text += fmt::format("{}  {}\n", columns(line.micros, whole),
                        line.source.empty() ? "no line: checks, memory, reading and writing" : line.source);
  return text;
}

std::string text_of(const GraphTime& time) {
  std::string text = fmt::format("{:.3g} us a call, of {} calls: us, share of a call\nlines of the script\n{}",
                                 time.micros, time.calls, lines_text(times_of_lines({time}), time.micros));
  for (const PartTime& part : time.parts)
    text += fmt::format("part\n{}  {}\n{}", columns(part.micros, time.micros), part.label, text_of(part, time.micros));
  return text;
}

TimeCalls::TimeCalls() {
  Timers& all = timers();
  const std::lock_guard lock(all.mutex);
  if (PartTimer::asked++ == 0) all.list.clear();
}
TimeCalls::~TimeCalls() { --PartTimer::asked; }

std::vector<GraphTime> TimeCalls::times() const {
  Timers& all = timers();
  const std::lock_guard lock(all.mutex);
  std::vector<GraphTime> times;
  for (const PartTimer* timer : all.list) times.push_back(timer->average());
  return times;
}

PartTimer::PartTimer(std::string graph) : graph_(std::move(graph)), to_report_(reports()) {
  if (to_report_) scope_ = messages::DebugScope::current();
}

PartTimer::~PartTimer() {
  Timers& all = timers();
  {
    const std::lock_guard lock(all.mutex);
    std::erase(all.list, this);
  }
  if (to_report_ && calls_ > 0) report();
}

void PartTimer::add_part(std::string label, std::string source, const std::vector<std::string>* lines) {
  parts_.push_back({std::move(label), std::move(source), lines});
}

/// Calls whose tapes are others than those of the calls before (of other sizes) begin anew.
void PartTimer::add(const TimedCall& call) {
  const int64_t whole = call.nanoseconds();
  if (asked > 0) {
    Timers& all = timers();
    const std::lock_guard lock(all.mutex);
    if (!std::count(all.list.begin(), all.list.end(), this)) all.list.push_back(this);
  }
  bool done = false;
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < parts_.size(); ++i)
      if (calls_ > 0 && parts_[i].tape != call.parts()[i].tape()) restart();
    for (size_t i = 0; i < parts_.size(); ++i) {
      const StepTimes& times = call.parts()[i];
      TimedPart& part = parts_[i];
      part.tape = times.tape(), part.all += times.whole, part.loops += times.loops;
      part.steps.resize(times.nanoseconds().size());
      for (size_t k = 0; k < part.steps.size(); ++k) part.steps[k] += times.nanoseconds()[k];
    }
    all_ += whole;
    done = ++calls_ >= reported_calls;
  }
  if (done && to_report_.exchange(false)) report();
}

void PartTimer::restart() {
  for (TimedPart& part : parts_) part.all = part.loops = 0, part.steps.clear();
  calls_ = all_ = 0;
}

/// Steps on several threads together take longer than the call waits for them: they are scaled to that. What the clock
/// took of it is in no step, and so it is taken away from the part.
PartTime PartTimer::average_of(const TimedPart& part, int64_t calls) {
  PartTime time{part.label, part.source, 0, {}, {}};
  const double waited = static_cast<double>(part.loops) / 1e3 / static_cast<double>(calls);
  for (const int64_t step : part.steps)
    time.steps.push_back(static_cast<double>(step) / 1e3 / static_cast<double>(calls));
  const double sum = sum_of(time.steps), scale = sum > waited ? waited / sum : 1;
  for (double& step : time.steps) step *= scale;
  time.micros = static_cast<double>(part.all) / 1e3 / static_cast<double>(calls) - waited + scale * sum;
  if (part.tape) time.listing = part.tape->listing(*part.lines);
  return time;
}

GraphTime PartTimer::average() const {
  const std::lock_guard lock(mutex_);
  GraphTime time{graph_, calls_, 0, {}};
  double clock = 0;
  for (const TimedPart& part : parts_) {
    time.parts.push_back(average_of(part, calls_));
    clock += static_cast<double>(part.all) / 1e3 / static_cast<double>(calls_) - time.parts.back().micros;
  }
  time.micros = static_cast<double>(all_) / 1e3 / static_cast<double>(calls_) - clock;
  return time;
}

void PartTimer::report() noexcept {
  try {
    const messages::DebugScope scope(scope_);
    const std::string text = text_of(average());
    messages::trace(
        [&] { return messages::TraceEvent("times").text("name", graph_).text("text", text).graph(graph_); });
    if (messages::wants_debug_file(messages::DebugFile::step_times))
      messages::write_debug_file(messages::DebugFile::step_times, text, graph_);
  } catch (const std::exception&) {  // no memory for a text
  }
}

}  // namespace triage::fused
