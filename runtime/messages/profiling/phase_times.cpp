#include "runtime/messages/profiling/phase_times.h"

#include <fmt/format.h>
#include <triage/compile_times.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "runtime/messages/debugging/trace_file.h"
#include "runtime/messages/fork_safe_mutex.h"
#include "runtime/messages/immortal.h"
#include "runtime/messages/printable.h"

namespace triage {
namespace {

constexpr size_t most_entries = 10'000;  // a process that makes functions without end has a table with an end

struct PhaseTable {
  messages::ForkSafeMutex mutex;
  std::vector<PhaseTime> times;
  std::map<std::pair<std::string, std::string>, size_t> place;  // in `times`, by phase and function
};

PhaseTable& table() noexcept { return messages::immortal<PhaseTable>(); }

std::string quoted_for_csv(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

}  // namespace

namespace messages {

void add_phase_time(const std::string& phase, const std::string& function,
                    std::chrono::steady_clock::duration time) noexcept {
  trace([&] {
    const auto begin = std::chrono::steady_clock::now() - time;
    return TraceEvent("phase").text("phase", phase).text("function", function).graph(function).since(begin);
  });
  try {
    PhaseTable& all = table();
    const std::lock_guard lock(all.mutex);
    const bool full = all.times.size() >= most_entries && !all.place.count({phase, function});
    const std::string& name = full ? "..." : function;
    if (all.times.size() == all.times.capacity()) all.times.reserve(2 * all.times.size() + 16);
    PhaseTime added{phase, name, 0, 0};
    const auto [place, is_new] = all.place.emplace(std::pair(phase, name), all.times.size());
    if (is_new)
      all.times.push_back(std::move(added));  // which allocates nothing: a place without its time would be left
    PhaseTime& entry = all.times[place->second];
    ++entry.count;
    entry.seconds += std::chrono::duration<double>(time).count();
  } catch (const std::exception&) {  // no memory for a statistic
  }
}

void forget_phase_times() noexcept {
  PhaseTable& all = table();
  const std::lock_guard lock(all.mutex);
  all.times.clear();
  all.place.clear();
}

}  // namespace messages

std::vector<PhaseTime> compile_times() {
  PhaseTable& all = table();
  const std::lock_guard lock(all.mutex);
  return all.times;
}

std::string compile_times_text(const std::vector<PhaseTime>& times) {
  std::vector<PhaseTime> sums;
  size_t widest = 8;
  for (const PhaseTime& time : times) {
    widest = std::max(widest, time.phase.size());
    auto sum = std::find_if(sums.begin(), sums.end(), [&](const PhaseTime& one) { return one.phase == time.phase; });
    if (sum == sums.end()) sum = sums.insert(sums.end(), {time.phase, "(all)", 0, 0});
    sum->count += time.count, sum->seconds += time.seconds;
  }
  std::string text = fmt::format("{:<{}}  {:>6}  {:>10}  function\n", "phase", widest, "count", "seconds");
  const auto add = [&](const PhaseTime& time) {
    text += fmt::format("{:<{}}  {:>6}  {:>10.6f}  {}\n", messages::printable(time.phase), widest, time.count,
                        time.seconds, messages::printable(time.function));
  };
  std::for_each(times.begin(), times.end(), add);
  std::for_each(sums.begin(), sums.end(), add);
  return text;
}

std::string compile_times_csv(const std::vector<PhaseTime>& times) {
  std::string text = "phase,function,count,seconds\n";
  for (const PhaseTime& time : times)
    text += fmt::format("{},{},{},{:.9f}\n", quoted_for_csv(time.phase), quoted_for_csv(time.function), time.count,
                        time.seconds);
  return text;
}

}  // namespace triage
