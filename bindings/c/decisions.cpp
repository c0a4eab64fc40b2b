// The decision log of a runtime.
#include "bindings/c/decisions.h"

#include <string>
#include <vector>

#include "bindings/c/functions.h"
#include "bindings/c/handles.h"
#include "bindings/c/options.h"

namespace triage::c {
namespace {

std::vector<std::string> names(const char* const* first, size_t count, const char* what) {
  std::vector<std::string> result;
  const auto [begin, end] = range(first, count, what);
  for (auto name = begin; name != end; ++name) result.emplace_back(text(*name, what));
  return result;
}

}  // namespace

std::shared_ptr<DecisionLog> decision_log(const TriageDecisionLogOptions& options, const Log& log) {
  const TriageDecisionLogOptions given = options_of(&options, "options->decisions");
  DecisionLogOptions result;
  result.file = text_or(given.file, "");
  if (given.on_line)
    result.on_line = [on_line = given.on_line, user = given.user](std::string_view line) {
      const InCallback inside;
      on_line(std::string(line).c_str(), line.size(), user);
    };
  result.max_file_bytes = positive(given.max_file_bytes, result.max_file_bytes, "decisions->max_file_bytes");
  result.max_files = positive(given.max_files, result.max_files, "decisions->max_files");
  result.clean_share = given.clean_share;
  result.queue_records = positive(given.queue_records, result.queue_records, "decisions->queue_records");
  result.max_samples = positive(given.max_samples, result.max_samples, "decisions->max_samples");
  result.at_once = choice(given.at_once, 2, "options->decisions->at_once");
  result.events = !choice(given.skip_events, 2, "options->decisions->skip_events");
  result.drop = names(given.drop, given.drop_count, "options->decisions->drop");
  result.mask = names(given.mask, given.mask_count, "options->decisions->mask");
  result.mask_key = text_or(given.mask_key, "");
  result.capsule_dir = text_or(given.capsule_dir, "");
  result.log = log;
  return std::make_shared<DecisionLog>(std::move(result));
}

TriageStatus flush_decisions(TriageRuntime* runtime) {
  return guarded("flush_decisions", [&] {
    const HandleUse flushed(runtime);
    if (!flushed->decisions)
      throw Misuse("this runtime has no decision log; create it with TriageRuntimeOptions::decisions");
    flushed->decisions->flush();
  });
}

}  // namespace triage::c
