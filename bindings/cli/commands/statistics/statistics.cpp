// `triage statistics`: how near values come to the limits of their dtypes.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "bindings/cli/calls/model_call.h"
#include "bindings/cli/commands.h"
#include "bindings/cli/commands/report/page.h"
#include "bindings/cli/commands/statistics/counted_values.h"
#include "bindings/cli/terminal.h"
#include "runtime/files/disk.h"

namespace triage::cli {
namespace {

using Json = nlohmann::ordered_json;

/// Throws UsageError for options that a file of statistics does not take.
CountedValues values_of_saved(const CallOptions& options) {
  const std::pair<const char*, bool> given[] = {{"--input", !options.inputs.empty()},
                                                {"--param", !options.params.empty()},
                                                {"--define", !options.given.empty()},
                                                {"--limits", !options.limits.empty()}};
  for (const auto& [name, is_given] : given)
    if (is_given) throw UsageError(fmt::format("{}: {} holds statistics, and is not called", name, options.policy));
  return values_of_file(options.policy);
}

CountedValues count(const StatisticsCommand& options) {
  if (std::filesystem::path(options.call.policy).extension() == ".json") return values_of_saved(options.call);
  if (!is_model_file(options.call.policy)) return values_of_policy(options.call, options.json);
  if (!options.call.given.empty())
    throw UsageError(
        fmt::format("--define: {} is a TorchScript model, and takes nothing of a host", options.call.policy));
  return values_of_model(options.call);
}

/// The object of `value_statistics_json`, behind what it is of.
Json to_json(const CountedValues& found) {
  Json json = {{found.kind, found.name}};
  if (found.kind != "file") json["calls"] = found.calls;
  json["error"] = found.failure.empty() ? Json() : Json(found.failure);
  json["notes"] = found.notes;
  json["statistics"] = Json::parse(value_statistics_json(found.statistics))["statistics"];
  return json;
}

void print(const CountedValues& found) {
  const std::string calls =
      found.kind == "file" ? "" : fmt::format(", {} {}", found.calls, found.calls == 1 ? "call" : "calls");
  say("{}{}\n", paint(Paint::heading, found.name), calls);
  if (found.statistics.empty()) say("  no values of floating dtypes\n");
  if (!found.statistics.empty()) say("{}", PreformattedText{value_statistics_text(found.statistics)});
  for (const std::string& note : found.notes) say("{}\n", note);
}

}  // namespace

int run(const StatisticsCommand& options) {
  const CountedValues found = count(options);
  const Json json = to_json(found);
  if (!options.html.empty()) files::write_file(options.html, page_with("triage statistics", "statistics.js", json));
  if (!options.metrics.empty()) files::write_file(options.metrics, value_statistics_metrics(found.statistics));
  if (options.json) {
    print_json(json);
  } else {
    print(found);
    if (!options.html.empty()) say("page written to {}\n", options.html);
    if (!options.metrics.empty()) say("metrics written to {}\n", options.metrics);
  }
  if (found.failure.empty()) return 0;
  if (!options.json) say("{}: {}\n", paint(Paint::error, "the call failed"), found.failure);
  return 1;
}

}  // namespace triage::cli
