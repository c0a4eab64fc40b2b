#include "bindings/cli/commands/decisions/decision_filter.h"
#include "bindings/cli/commands/decisions/decision_reader.h"
#include "tests/fuzz/inputs/targets.h"

#include <algorithm>
#include <optional>

namespace triage::fuzz {
namespace {

using Json = nlohmann::ordered_json;

std::vector<Json> decisions_in(std::string_view lines, uint64_t& damaged) {
  const MemoryFile memory(lines);
  cli::DecisionFile file(memory.path());
  const std::string first = file.first_time();
  std::vector<Json> all;
  while (std::optional<Json> decision = file.next()) all.push_back(std::move(*decision));
  if (first != (all.empty() ? "" : all[0]["time"].get<std::string>())) throw Broken("the first time is another");
  damaged = file.damaged().count;
  return all;
}

/// What is found by its own words.
void find(const std::vector<Json>& decisions) {
  cli::DecisionsCommand anything, by_sample, by_code, by_location;
  by_sample.sample = "customer-7";
  by_code.code = "NAN";
  by_location.location = "enc*";
  for (const cli::DecisionsCommand* options : {&anything, &by_sample, &by_code, &by_location}) {
    const cli::DecisionFilter filter(*options);
    for (const Json& decision : decisions) {
      const cli::Match match = filter.match(decision);
      if (options == &anything && !match.matches) throw Broken("a decision is left out where all are asked for");
      for (const auto& sample : match.samples)
        cli::field(*sample.sample, "done"), cli::count_in(*sample.sample, "sample");
    }
  }
}

}  // namespace

/// The lines that are decisions are so again when they are written.
void read_decisions(std::string_view lines) {
  uint64_t damaged = 0;
  const std::vector<Json> decisions = decisions_in(lines, damaged);
  const auto written = static_cast<uint64_t>(std::count(lines.begin(), lines.end(), '\n')) + 1;
  if (decisions.size() + damaged > written) throw Broken("there are more decisions than lines");
  find(decisions);
  std::string again;
  for (const Json& decision : decisions) again += decision.dump() + "\n";
  if (decisions_in(again, damaged) != decisions || damaged > 0)
    throw Broken("other decisions are read again:\n" + again);
}

std::vector<std::string> decision_seeds() {
  const std::string plain =
      R"({"time":"2026-05-04T03:02:01.000123Z","decision_id":"d1","policy":"repair","version":3,"hash":"00f5","batch":64,)"
      R"("flagged":2,"repaired":1,"answered":"live","form":"graph","samples":[{"sample":0,"sample_id":"customer-7",)"
      R"("done":"repaired","errors":[{"location":"encoder","code":"NAN","severity":"CRITICAL"}]},{"sample":9}]})";
  const std::string failed =
      R"({"time":"2026-05-04T03:02:02.000000Z","trace_id":"t","policy":"repair","path":"p.lua","live_version":2,)"
      R"("answered":"fallback","failure":"repair.lua:3: no","failure_kind":"script","capsule":"c.json"})";
  const std::string event =
      R"({"time":"2026-05-04T03:02:02.500000Z","event":"live","policy":"repair","path":"p.lua","version":4,"hash":"00f6",)"
      R"("kept":"c/p-00f6.lua","by":"disk","previous_version":3,"previous_hash":"00f5",)"
      R"("previous_totals":{"samples":640,"flagged":2,"repaired":1}})";
  return {event + "\n" + plain + "\n", plain + "\n" + failed + "\n",
          R"({"time":"2026-05-04T03:02:03.000000Z","dropped":12})", "\n" + plain};
}

}  // namespace triage::fuzz
