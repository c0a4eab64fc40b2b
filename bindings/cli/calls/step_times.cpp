#include "bindings/cli/calls/step_times.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

namespace triage::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int fewest_calls = 5;

Json source_json(const std::string& source) { return source.empty() ? Json() : Json(source); }

Json steps_json(const fused::PartTime& part, double whole) {
  Json steps = Json::array();
  for (const fused::ListedLine& line : part.listing) {
    if (line.step < 0) continue;
    const double micros = part.steps[static_cast<size_t>(line.step)];
    steps.push_back({{"step", line.step},
                     {"text", line.text},
                     {"source", source_json(line.source)},
                     {"us", micros},
                     {"share", micros / whole}});
  }
  return steps;
}

/// A graph may run several times in a call, or in some calls only.
void scale(fused::GraphTime& graph, double factor) {
  graph.micros *= factor;
  for (fused::PartTime& part : graph.parts) {
    part.micros *= factor;
    for (double& step : part.steps) step *= factor;
  }
}

}  // namespace

std::vector<fused::GraphTime> time_steps(const std::function<void()>& call, double seconds) {
  call();
  const fused::TimeCalls timing;
  const auto begin = std::chrono::steady_clock::now();
  const std::chrono::duration<double> limit(seconds);
  int64_t calls = 0;
  for (; calls < fewest_calls || std::chrono::steady_clock::now() - begin < limit; ++calls) call();
  std::vector<fused::GraphTime> graphs = timing.times();
  for (fused::GraphTime& graph : graphs) scale(graph, static_cast<double>(graph.calls) / static_cast<double>(calls));
  return graphs;
}

double micros_of(const std::vector<fused::GraphTime>& graphs) {
  double micros = 0;
  for (const fused::GraphTime& graph : graphs) micros += graph.micros;
  return micros;
}

Json to_json(const std::vector<fused::GraphTime>& graphs, const std::vector<fused::LineTime>& lines, double whole) {
  Json by_line = Json::array(), by_graph = Json::array();
  for (const fused::LineTime& line : lines)
    by_line.push_back({{"source", source_json(line.source)}, {"us", line.micros}, {"share", line.micros / whole}});
  for (const fused::GraphTime& graph : graphs) {
    Json parts = Json::array();
    for (const fused::PartTime& part : graph.parts)
      parts.push_back({{"name", part.label},
                       {"source", source_json(part.source)},
                       {"us", part.micros},
                       {"share", part.micros / whole},
                       {"steps", steps_json(part, whole)}});
    by_graph.push_back({{"graph", graph.graph}, {"us", graph.micros}, {"parts", std::move(parts)}});
  }
  return {{"us", whole}, {"lines", std::move(by_line)}, {"graphs", std::move(by_graph)}};
}

}  // namespace triage::cli
