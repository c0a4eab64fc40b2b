#include "runtime/capture/cache/recompiles.h"

#include "runtime/capture/compiled.h"
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

std::string Recompiles::why_not(const CacheEntry& entry, at::ArrayRef<at::Tensor> all) const {
  const at::ArrayRef<at::Tensor> variables = script_.variables();
  if (entry.fell_back && entry.guards.hold(all, variables))
    return "the backend cannot compile this graph, which is an error in this call";
  if (entry.failed && entry.guards.hold(all, variables))
    return "the graph runs all branches, and a branch that the script does not take fails on such inputs, or returns "
           "other shapes";
  return entry.guards.failure(all, input_names(script_.signature()), variables);
}

void Recompiles::report(at::ArrayRef<at::Tensor> all, Stance stance) const {
  const auto& graphs = entries_.all();
  if (options_.counts && !graphs.empty()) options_.counts->recompiles.fetch_add(1, std::memory_order_relaxed);
  if (options_.observer && !graphs.empty())
    options_.observer->recompiled(script_.name(), script_.definition().where, last_reason(all));
  if (messages::trace_on() && stance == Stance::default_stance && !graphs.empty())
    trace_recompile(script_.name(), script_.definition().where, last_reason(all));
  if (!options_.inform || graphs.empty()) return;
  std::string text = recompile_heading(script_.name(), script_.definition().where, stance);
  constexpr size_t most = 16;  // the newest: where graphs are many, the next must not cost more than the first ones did
  const size_t first = graphs.size() - std::min(graphs.size(), most);
  if (first > 0) text += "\n  - " + std::to_string(first) + " older graphs do not fit either";
  std::vector<MisfitGraph> misfits;
  for (size_t i = first; i < graphs.size(); ++i)
    misfits.push_back({"0/" + std::to_string(i), why_not(*graphs[i], all)});
  options_.inform(text + reason_lines(misfits));
}

std::string Recompiles::last_reason(at::ArrayRef<at::Tensor> all) const {
  if (!entries_.all().empty()) return why_not(*entries_.all().back(), all);
  return options_.last_reason ? options_.last_reason() : "";
}

std::optional<Recompiles::RecompileLimit> Recompiles::limit_reached() const {
  const CompilerConfig config = get_compiler_config();
  const size_t limit = options_.recompile_limit.value_or(static_cast<size_t>(config.recompile_limit));
  if (options_.graphs_made->load(std::memory_order_relaxed) >= config.accumulated_recompile_limit)
    return RecompileLimit{
        "the limit of " + std::to_string(config.accumulated_recompile_limit) + " captured graphs in all",
        "triage.config.accumulated_recompile_limit"};
  const CacheEntry* const newest = entries_.newest();  // those that were retired count above alone
  if (newest && newest->chain >= limit)
    return RecompileLimit{"the limit of " + std::to_string(limit) + " captured graphs",
                          "triage.config.recompile_limit"};
  return std::nullopt;
}

void Recompiles::report_limit(const RecompileLimit& limit, at::ArrayRef<at::Tensor> all) const {
  if (options_.counts) options_.counts->recompiles.fetch_add(1, std::memory_order_relaxed);
  if (options_.observer) {
    const Source where = script_.definition().where;
    options_.observer->recompiled(script_.name(), where, last_reason(all));
    options_.observer->met_limit(script_.name(), where, limit.text, limit.setting);
  }
  const bool fails = get_compiler_config().fail_on_recompile_limit_hit;
  const bool warns = !fails && options_.warn && options_.warned->limits.insert(limit.text).second;
  if (!fails && !warns) return;
  const std::string reason = last_reason(all);
  const std::string text =
      named(script_.name(), script_.definition().where) + " reached " + limit.text +
      (fails ? " (fail_on_recompile_limit_hit)." : "; other calls now run the script.") +
      (reason.empty() ? "" : " Last reason: " + reason + ".") +
      " Hint: each new value of an argument that is not a tensor, of a variable from outside, or of "
      "a size that the script loops over needs another graph. Pass numbers as params or as "
      "tensors, and use sizes in tensor operations only. TRIAGE_LOGS=recompiles shows every reason.";
  if (fails) throw Error(text);
  options_.warn(text);
}

}  // namespace triage::capture
