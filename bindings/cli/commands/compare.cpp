// `triage run --compare`: the capture against the script, and backends against `eager`.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/compare.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "bindings/cli/calls/call.h"
#include "bindings/cli/commands.h"
#include "bindings/cli/terminal.h"
#include "bindings/lua/testing/agreement.h"
#include "runtime/capture/force_eager.h"

namespace triage::cli {
namespace {

using Json = nlohmann::ordered_json;

/// The backends of "eager,fused", without `eager`, with which the others are compared.
std::vector<BackendComparison::Compared> compared_backends(const RunCommand& options) {
  std::vector<BackendComparison::Compared> compared;
  std::istringstream names(options.compare);
  for (std::string name; std::getline(names, name, ',');) {
    check_backend(name);
    if (name != "eager") compared.push_back({name, find_backend(name)});
  }
  if (compared.empty())
    throw UsageError(
        fmt::format("--compare {}: name a backend besides eager, with which the others are compared, for example "
                    "--compare eager,fused",
                    options.compare));
  return compared;
}

/// Where the policy's random numbers begin in both, the script and its graphs.
constexpr uint64_t first_seed = 1;

lua::RunOutcome outcome_of(const PreparedCall& call) {
  lua::RunOutcome outcome;
  call.policy.reset_state();
  outcome.outputs = call.policy.run(call.inputs, call.options);
  outcome.flags = call.policy.flags_outputs();
  return outcome;
}

bool draws(const Policy& policy) {
  const auto graphs = graphs_of(policy);
  return std::any_of(graphs.begin(), graphs.end(), [](const CapturedGraph& captured) {
    const auto& nodes = captured.graph->nodes();
    return std::any_of(nodes.begin(), nodes.end(), [](const auto& node) { return graph::is_random(node->op); });
  });
}

/// How the graphs differ from the script; empty: not at all.
std::string check_capture(const PreparedCall& call, const BackendComparison& comparison) {
  // A second call draws the numbers behind those of the first, and so tells how many these were.
  const auto outcomes = [&](size_t count) {
    call.policy.manual_seed(first_seed);
    std::vector<lua::RunOutcome> found;
    for (size_t i = 0; i < count; ++i) found.push_back(outcome_of(call));
    return found;
  };
  const auto compared = [&](size_t count) {
    std::vector<lua::RunOutcome> script;
    {
      const capture::ForceEager force_eager;
      script = outcomes(count);
    }
    const std::vector<lua::RunOutcome> captured = outcomes(count);
    std::string difference;
    for (size_t i = 0; i < count && difference.empty(); ++i)
      difference = lua::difference(script[i], captured[i], call.policy.signature().outputs);
    return difference;
  };
  std::string difference = compared(1);
  // With graph breaks, the first call finds the graphs between them, and the second runs them.
  if (comparison.graphs().empty() || draws(call.policy)) {
    const std::string again = compared(draws(call.policy) ? 2 : 1);
    if (difference.empty()) difference = again;
  }
  return difference;
}

Json to_json(const std::optional<ValueDifference>& difference) {
  if (!difference) return nullptr;
  Json json = {{"value", difference->value}, {"units", difference->units}, {"row", difference->row}};
  if (!std::isfinite(difference->units)) json["units"] = nullptr;
  json["wrong"] = difference->wrong.empty() ? Json() : Json(difference->wrong);
  if (!difference->source.file.empty()) json["file"] = difference->source.file, json["line"] = difference->source.line;
  return json;
}

Json to_json(const GraphComparison& graph) {
  return {{"graph", graph.graph},
          {"backend", graph.backend},
          {"nodes", graph.nodes},
          {"ok", graph.ok()},
          {"failure", graph.failure.empty() ? Json() : Json(graph.failure)},
          {"result", to_json(graph.result)},
          {"node", to_json(graph.node)}};
}

std::string capture_text(const std::string& difference, size_t breaks) {
  if (!difference.empty()) return paint(Paint::error, "WRONG") + ": " + difference;
  return fmt::format("the same bits as the script{}", breaks == 0   ? ""
                                                      : breaks == 1 ? " (1 graph break)"
                                                                    : fmt::format(" ({} graph breaks)", breaks));
}

}  // namespace

int compare(const RunCommand& options) {
  const BackendComparison comparison(compared_backends(options));
  register_backend("compare", comparison.backend());
  CallOptions with_comparison = options.call;
  with_comparison.backend = "compare";
  const PreparedCall call = prepare_call(with_comparison, options.json);
  std::string difference;
  {
    Progress progress;
    progress.show("comparing node by node ...");
    difference = check_capture(call, comparison);
  }
  const std::vector<GraphComparison> graphs = comparison.graphs();
  const size_t breaks = call.policy.breaks().size();
  const bool ok =
      difference.empty() && std::all_of(graphs.begin(), graphs.end(), [](const auto& graph) { return graph.ok(); });
  if (options.json) {
    Json json = {{"policy", call.policy.name()}, {"ok", ok}, {"graph_breaks", breaks}};
    json["capture"] = {{"checked", true}, {"difference", difference.empty() ? Json() : Json(difference)}};
    json["graphs"] = Json::array();
    for (const GraphComparison& graph : graphs) json["graphs"].push_back(to_json(graph));
    print_json(json);
  } else {
    say("{}\n  capture: {}\n", paint(Paint::heading, call.policy.name()), capture_text(difference, breaks));
    if (graphs.empty()) say("  no graph: the script runs on every call, and no backend computes anything\n");
    for (const GraphComparison& graph : graphs) say("  {}\n", text(graph));
  }
  return ok ? 0 : 1;
}

}  // namespace triage::cli
