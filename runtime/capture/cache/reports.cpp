// What is said of graphs: what broke them, why none fits a call, and that there are too many.
#include "runtime/capture/compiled.h"
#include "runtime/capture/replay/trace_tree.h"
#include "runtime/capture/reports/compile_observer.h"
#include "runtime/capture/reports/logs.h"
#include "runtime/capture/reports/recompile_reasons.h"
#include "runtime/capture/reports/trace_events.h"

#include "runtime/messages/debugging/trace_file.h"
#include "runtime/messages/logs/artefacts.h"

#include <triage/compiler_config.h>
#include <triage/error.h>

#include <algorithm>

namespace triage::capture {

void Compiled::note_break(const GraphBreak& graph_break, size_t times) {
  if (options_.counts) options_.counts->graph_breaks.fetch_add(times, std::memory_order_relaxed);
  if (options_.observer && times > 0) options_.observer->met_break(script_->name(), graph_break, times);
  const bool always = messages::logs(messages::Artefact::graph_breaks, messages::Detail::more);
  {
    std::lock_guard<std::mutex> lock(notes_mutex_);
    const auto same = [&](const GraphBreak& known) { return same_break(known, graph_break); };
    const bool known = std::any_of(breaks_.begin(), breaks_.end(), same);
    if (known && !always) return;
    if (!known) {
      breaks_.push_back(graph_break);
      trace_break(*script_, graph_break);
    }
  }
  warn_of(graph_break, always);
}

/// In full, and once for each line of the script: what breaks there again, for other arguments or variables, is the same to
/// who reads it. `always`: also one that was told.
void Compiled::warn_of(const GraphBreak& graph_break, bool always) const {
  if (!options_.warn || !options_.warn_of_breaks || !messages::logs(messages::Artefact::graph_breaks)) return;
  std::vector<GraphBreak>& told = options_.warned->breaks;
  if (!always &&
      std::any_of(told.begin(), told.end(), [&](const GraphBreak& one) { return same_place(one, graph_break); }))
    return;
  told.push_back({graph_break.kind, graph_break.what, "", graph_break.where, ""});
  const char* outcome = "' has a graph break, so its script runs on every call, with graphs for the parts: ";
  if (graph_break.kind == Break::other_argument)
    outcome = "' runs as a script when it is called with such an argument: ";
  if (graph_break.kind == Break::gradients) outcome = "' calls some operators outside of its graph: ";
  options_.warn("'" + script_->name() + outcome + graph_break.text() +
                "\n\nTRIAGE_LOGS=+capture shows each operation that is recorded before it.");
}

std::string Compiled::guards_text(const Guards& guards, const std::vector<std::string>& names) const {
  const std::string text = guards.text(names);
  if (options_.other_guards) return text + options_.other_guards();
  return text + "variables of the script: it has not written to them outside of a capture\n";
}

std::string Compiled::why_not(const Entry& entry, at::ArrayRef<at::Tensor> all) const {
  const at::ArrayRef<at::Tensor> variables = script_->variables();
  if (entry.fell_back && entry.guards.hold(all, variables))
    return "the backend cannot compile this graph, which is an error in this call";
  if (entry.failed && entry.guards.hold(all, variables))
    return "the graph runs all branches, and a branch that the script does not take fails on such inputs, or returns "
           "other shapes";
  return entry.guards.failure(all, input_names(), variables);
}

void Compiled::report_recompile(at::ArrayRef<at::Tensor> all, Stance stance) const {
  if (options_.counts && !entries_.empty()) options_.counts->recompiles.fetch_add(1, std::memory_order_relaxed);
  if (options_.observer && !entries_.empty())
    options_.observer->recompiled(script_->name(), script_->definition().where, last_reason(all));
  if (messages::trace_on() && stance == Stance::default_stance && !entries_.empty())
    trace_recompile(script_->name(), script_->definition().where, last_reason(all));
  if (!options_.inform || entries_.empty()) return;
  std::string text = recompile_heading(script_->name(), script_->definition().where, stance);
  constexpr size_t most = 16;  // the newest: where graphs are many, the next must not cost more than the first ones did
  const size_t first = entries_.size() - std::min(entries_.size(), most);
  if (first > 0) text += "\n  - " + std::to_string(first) + " older graphs do not fit either";
  std::vector<MisfitGraph> misfits;
  for (size_t i = first; i < entries_.size(); ++i)
    misfits.push_back({"0/" + std::to_string(i), why_not(*entries_[i], all)});
  options_.inform(text + reason_lines(misfits));
}

std::string Compiled::last_reason(at::ArrayRef<at::Tensor> all) const {
  if (!entries_.empty()) return why_not(*entries_.back(), all);
  return options_.last_reason ? options_.last_reason() : "";
}

std::optional<Compiled::Limit> Compiled::limit_reached() const {
  const CompilerConfig config = get_compiler_config();
  const size_t limit = options_.recompile_limit.value_or(static_cast<size_t>(config.recompile_limit));
  if (options_.graphs_made->load(std::memory_order_relaxed) >= config.accumulated_recompile_limit)
    return Limit{"the limit of " + std::to_string(config.accumulated_recompile_limit) + " captured graphs in all",
                 "triage.config.accumulated_recompile_limit"};
  const Entry* const newest = newest_.load(std::memory_order_relaxed);  // those that were retired count above alone
  if (newest && newest->chain >= limit)
    return Limit{"the limit of " + std::to_string(limit) + " captured graphs", "triage.config.recompile_limit"};
  return std::nullopt;
}

Ran Compiled::run_over_limit(const Limit& limit, at::ArrayRef<at::Tensor> all, size_t num_params, Deadline deadline,
                             std::vector<at::Tensor>& outputs) {
  if (options_.counts) options_.counts->recompiles.fetch_add(1, std::memory_order_relaxed);
  if (options_.observer) {
    const Source where = script_->definition().where;
    options_.observer->recompiled(script_->name(), where, last_reason(all));
    options_.observer->met_limit(script_->name(), where, limit.text, limit.setting);
  }
  const bool fails = get_compiler_config().fail_on_recompile_limit_hit;
  const bool warns = !fails && options_.warn && options_.warned->limits.insert(limit.text).second;
  if (!fails && !warns) return run_script(all, num_params, deadline, outputs, /*follow=*/false);
  const std::string reason = last_reason(all);
  const std::string text =
      named(script_->name(), script_->definition().where) + " reached " + limit.text +
      (fails ? " (fail_on_recompile_limit_hit)." : "; other calls now run the script.") +
      (reason.empty() ? "" : " Last reason: " + reason + ".") +
      " Hint: each new value of an argument that is not a tensor, of a variable from outside, or of "
      "a size that the script loops over needs another graph. Pass numbers as params or as "
      "tensors, and use sizes in tensor operations only. TRIAGE_LOGS=recompiles shows every reason.";
  if (fails) throw Error(text);
  options_.warn(text);
  return run_script(all, num_params, deadline, outputs, /*follow=*/false);
}

}  // namespace triage::capture
