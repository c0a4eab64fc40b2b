#include <fmt/format.h>
#include <triage/compile_profiler.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "runtime/backends/eager.h"
#include "runtime/capture/reports/compile_observer.h"
#include "runtime/capture/reports/logs.h"
#include "runtime/capture/reports/recompile_reasons.h"
#include "runtime/messages/printable.h"

namespace triage {
namespace {

constexpr size_t most_entries = 10'000;  // of each kind; a program may make functions without end

std::string place_text(const Source& source) {
  return source.file.empty() ? "" : source.file + ":" + std::to_string(source.line);
}

std::string counted(size_t count, const char* one, const char* many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

/// That a function has met.
struct ReachedLimit {
  std::string function;
  Source source;
  std::string limit;    // "the limit of 8 captured graphs"
  std::string setting;  // that raises it
};

}  // namespace

class CompileProfiler::Counts final : public capture::CompileObserver {
 public:
  void compiled(const graph::Graph& graph) override {
    const std::lock_guard lock(mutex);
    ++graphs;
    operations += graph.nodes().size();
  }

  void met_break(const std::string& function, const capture::GraphBreak& met, size_t times) override {
    const std::lock_guard lock(mutex);
    std::string reason = fmt::format("{} ({})", met.what, capture::info(met.kind).id);
    const auto same = [&](const Break& known) {
      return known.function == function && known.source.line == met.where.line && known.source.file == met.where.file &&
             known.reason == reason;
    };
    auto found = std::find_if(breaks.begin(), breaks.end(), same);
    if (found == breaks.end()) {
      if (breaks.size() == most_entries) return;
      found = breaks.insert(breaks.end(), {function, std::move(reason), met.hint, met.where, 0});
    }
    found->count += times;
  }

  void recompiled(const std::string& function, const Source& definition, const std::string& why) override {
    const std::lock_guard lock(mutex);
    std::string guard = capture::guard_of(why);
    auto found = std::find_if(recompiles.begin(), recompiles.end(), [&](const Recompile& known) {
      return known.function == function && known.guard == guard && known.source.line == definition.line &&
             known.source.file == definition.file;
    });
    if (found == recompiles.end()) {
      if (recompiles.size() == most_entries) return;
      const std::string advice = capture::advice_for(guard);
      found = recompiles.insert(recompiles.end(), {function, definition, std::move(guard), "", advice, 0});
    }
    found->example = why;
    ++found->count;
  }

  void met_limit(const std::string& function, const Source& definition, const std::string& limit,
                 const std::string& setting) override {
    const std::lock_guard lock(mutex);
    const auto same = [&](const ReachedLimit& known) {
      return known.function == function && known.limit == limit && known.source.line == definition.line &&
             known.source.file == definition.file;
    };
    if (limits.size() == most_entries || std::any_of(limits.begin(), limits.end(), same)) return;
    limits.push_back({function, definition, limit, setting});
  }

  std::vector<ReachedLimit> met_limits() const {
    const std::lock_guard lock(mutex);
    return limits;
  }

  mutable std::mutex mutex;  // of all that follows
  size_t graphs = 0, operations = 0;
  std::vector<Break> breaks;
  std::vector<Recompile> recompiles;
  std::vector<ReachedLimit> limits;
};

CompileProfiler::CompileProfiler() : counts_(std::make_shared<Counts>()) {}

Backend CompileProfiler::backend() const { return capture::observed(compile_eager, counts_); }

size_t CompileProfiler::graphs() const {
  const std::lock_guard lock(counts_->mutex);
  return counts_->graphs;
}

size_t CompileProfiler::operations() const {
  const std::lock_guard lock(counts_->mutex);
  return counts_->operations;
}

std::vector<CompileProfiler::Break> CompileProfiler::breaks() const {
  const std::lock_guard lock(counts_->mutex);
  return counts_->breaks;
}

std::vector<CompileProfiler::Recompile> CompileProfiler::recompiles() const {
  const std::lock_guard lock(counts_->mutex);
  return counts_->recompiles;
}

std::shared_ptr<capture::CompileObserver> CompileProfiler::observer() const { return counts_; }

std::string CompileProfiler::report() const {
  const std::vector<Break> met = breaks();
  const std::vector<Recompile> again = recompiles();
  std::string text = fmt::format("Compile profile: {}, {}\n", counted(graphs(), "graph", "graphs"),
                                 counted(operations(), "operation", "operations"));
  text += "\nGraph breaks\n";
  if (met.empty()) text += "  none\n";
  for (const Break& one : met) {
    text += fmt::format("  {:>6}x  {}: {}\n           in '{}'\n", one.count, place_text(one.source), one.reason,
                        one.function);
    if (!one.hint.empty()) text += fmt::format("           {}\n", one.hint);
  }
  text += "\nRecompiles\n";
  if (again.empty()) text += "  none\n";
  for (const Recompile& one : again) {
    const std::string place = place_text(one.source);
    text += fmt::format("  {:>6}x  '{}'{}: {}\n", one.count, one.function,
                        place.empty() || place == one.function ? "" : " (" + place + ")", one.guard);
    if (one.example != one.guard) text += fmt::format("           last: {}\n", one.example);
    text += fmt::format("           {}\n", one.advice);
  }
  for (const ReachedLimit& one : counts_->met_limits())
    text += fmt::format(
        "\n{} reached {}; calls that no graph fits run the script. If the advice does not help, set {} to more than "
        "the "
        "number of cases there are.\n",
        capture::named(one.function, one.source), one.limit, one.setting);
  return messages::printable(text);
}

}  // namespace triage
