#include <fmt/format.h>
#include <triage/compile_profiler.h>
#include <triage/compiler_config.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "runtime/backends/eager.h"
#include "runtime/capture/compile_observer.h"
#include "runtime/messages/printable.h"

namespace triage {
namespace {

constexpr size_t most_entries = 10'000;  // of each kind; a program may make functions without end

/// A failed guard without the values of one call, so that failures of the same guard count together.
std::string guard_of(const std::string& why) {
  const size_t values = std::min(why.find(". expected"), why.find(" was "));
  if (values == std::string::npos) return why;
  const size_t place = why.rfind(" (");
  const bool has_place = place != std::string::npos && place > values && why.back() == ')';
  return why.substr(0, values) + (has_place ? why.substr(place) : "");
}

std::string advice_for(const std::string& guard) {
  const auto has = [&](const char* text) { return guard.find(text) != std::string::npos; };
  if (has("size mismatch") && has("(read at"))
    return "work on the whole batch at that line instead of a loop over its rows, so that the graph serves every size";
  if (has("size mismatch")) return "a size that changes must not be marked static, and needs `dynamic` capture";
  if (guard.rfind("argument ", 0) == 0)
    return "a plain argument is part of the graph: pass a param of the policy, or a 0-dim tensor";
  if (has("upvalue") || has("global") || has("variable"))
    return "what a function reads from outside is part of the graph: make it an argument, or a tensor whose values "
           "change";
  if (has("requires_grad") || has("grad mode")) return "call the function in one grad mode, or accept a graph for each";
  if (has("dtype")) return "convert the inputs to one dtype before the call";
  if (has("rank")) return "give the inputs the same number of dims, or accept a graph for each";
  return "call the function with inputs of the same kind, or accept a graph for each";
}

std::string place_text(const Source& source) {
  return source.file.empty() ? "" : source.file + ":" + std::to_string(source.line);
}

std::string counted(size_t count, const char* one, const char* many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

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
    std::string guard = guard_of(why);
    auto found = std::find_if(recompiles.begin(), recompiles.end(), [&](const Recompile& known) {
      return known.function == function && known.guard == guard && known.source.line == definition.line &&
             known.source.file == definition.file;
    });
    if (found == recompiles.end()) {
      if (recompiles.size() == most_entries) return;
      const std::string advice = advice_for(guard);
      found = recompiles.insert(recompiles.end(), {function, definition, std::move(guard), "", advice, 0});
    }
    found->example = why;
    ++found->count;
  }

  mutable std::mutex mutex;  // of all that follows
  size_t graphs = 0, operations = 0;
  std::vector<Break> breaks;
  std::vector<Recompile> recompiles;
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
  const auto limit = static_cast<size_t>(get_compiler_config().recompile_limit);
  size_t most = 0;
  for (const Recompile& one : again) most = std::max(most, one.count);
  if (most >= limit)
    text += fmt::format(
        "\nThe limit of {} graphs for a function was met; further calls run the script. If the advice does not help, "
        "set "
        "triage.config.recompile_limit to more than the number of cases there are.\n",
        limit);
  return messages::printable(text);
}

}  // namespace triage
