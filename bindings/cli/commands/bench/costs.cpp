#include "bindings/cli/commands/bench/costs.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <string_view>
#include <utility>

#include "bindings/cli/commands/bench/span_recorder.h"

namespace triage::bench {
namespace {

constexpr int fewest_calls = 3;
constexpr size_t most_spans = 200'000;

/// At least a few times, until the seconds are over or there are more spans than anybody needs; returns how often.
int repeat(
    const std::function<void()>& call, double seconds, const SpanRecorder& recorder,
    const std::function<void()>& note_call = [] {}) {
  const auto begin = std::chrono::steady_clock::now();
  const std::chrono::duration<double> limit(seconds);
  int calls = 0;
  while (calls < fewest_calls ||
         (std::chrono::steady_clock::now() - begin < limit && recorder.spans().size() < most_spans)) {
    note_call();
    call();
    ++calls;
  }
  return calls;
}

/// Nanoseconds of all calls become shares, and microseconds of one.
std::vector<ProfileEntry> dearest_first(std::vector<ProfileEntry> costs, int calls, double all) {
  for (ProfileEntry& cost : costs) {
    cost.share = all > 0 ? cost.micros / all : 0;
    cost.micros /= 1000.0 * calls;
  }
  std::stable_sort(costs.begin(), costs.end(),
                   [](const ProfileEntry& a, const ProfileEntry& b) { return a.micros > b.micros; });
  return costs;
}

bool begins(std::string_view text, std::string_view with) { return text.substr(0, with.size()) == with; }

/// What other parts run in: a policy, a graph.
bool is_container(const SpanRecorder::Span& span) {
  return !span.is_operator && begins(span.name, "triage::") && !begins(span.name, "triage::fused group ") &&
         !begins(span.name, "triage::node ");
}

}  // namespace

std::vector<ProfileEntry> costs_by_line(lua::LuaScript& script, const std::function<void()>& call, double seconds) {
  call();
  const SpanRecorder recorder([&] { return script.current_line(); });
  std::vector<std::pair<size_t, int64_t>> starts;  // of calls: the first span of each, and when it began
  const int calls = repeat(call, seconds, recorder, [&] { starts.emplace_back(recorder.spans().size(), now()); });
  std::map<std::pair<std::string, int>, double> times;
  double all = 0;
  size_t next = 0;
  int64_t from = 0;
  for (size_t i = 0; i < recorder.spans().size(); ++i) {
    const SpanRecorder::Span& span = recorder.spans()[i];
    for (; next < starts.size() && starts[next].first <= i; ++next) from = starts[next].second;
    if (span.parent >= 0) continue;
    const double time = static_cast<double>(span.begin - from + span.end - span.ready);
    if (!span.line.file.empty()) times[{span.line.file, span.line.line}] += time;
    all += time;
    from = span.end;
  }
  std::vector<ProfileEntry> costs;
  for (const auto& [place, time] : times) costs.push_back({"", {place.first, place.second}, time, 0});
  return dearest_first(std::move(costs), calls, all);
}

std::vector<ProfileEntry> costs_by_part(const std::function<void()>& call, double seconds) {
  const SpansOn spans_on;
  call();
  const SpanRecorder recorder;
  const int calls = repeat(call, seconds, recorder);
  const auto& spans = recorder.spans();
  std::vector<ProfileEntry> costs;
  std::map<std::string, size_t> places;
  double all = 0;
  for (const SpanRecorder::Span& span : spans) {
    const auto time = static_cast<double>(span.end - span.begin);
    if (span.parent < 0) all += time;
    if (is_container(span)) continue;
    if (span.parent >= 0 && !is_container(spans[static_cast<size_t>(span.parent)])) continue;
    const auto [place, added] = places.emplace(span.name, costs.size());
    if (added) costs.push_back({span.name, {}, 0, 0});
    costs[place->second].micros += time;
  }
  return dearest_first(std::move(costs), calls, all);
}

}  // namespace triage::bench
