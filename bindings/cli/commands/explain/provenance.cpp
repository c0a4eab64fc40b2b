#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/config.h>
#include <triage/provenance.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "bindings/cli/calls/model_call.h"
#include "bindings/cli/commands.h"
#include "bindings/cli/commands/explain/provenance.h"
#include "bindings/cli/terminal.h"
#include "runtime/graph/output_names.h"
#include "runtime/location/glob.h"
#include "runtime/policy/state/state_of_call.h"
#include "runtime/policy/versions/version.h"

namespace triage::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t rows_shown = 8;

// What was found, for people and for programs

std::string rows_text(const std::vector<int64_t>& rows) {
  const size_t shown = std::min(rows.size(), rows_shown);
  const std::vector<int64_t> first(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(shown));
  return fmt::format("{} {}: {}{}", rows.size(), rows.size() == 1 ? "row" : "rows", fmt::join(first, ", "),
                     shown < rows.size() ? ", ..." : "");
}

/// Which way the operations ran.
enum class Way : uint8_t { forward, backward };

std::string what_text(const Producer& producer, Way way) {
  switch (producer.kind) {
    case Producer::Kind::input:
      return way == Way::forward ? "input " + producer.name : producer.name;
    case Producer::Kind::held:
      return "held: " + producer.name;
    case Producer::Kind::sum:
      return producer.name;
    default:
      return way == Way::forward ? producer.name : "derivative of " + producer.name;
  }
}

std::string where_text(const Producer& producer) {
  std::string where = producer.location;
  if (!producer.source.file.empty())
    where += fmt::format("{}{}:{}", where.empty() ? "" : "  ", producer.source.file, producer.source.line);
  return where;
}

void print_producers(const Provenance& found, Way way) {
  size_t what_width = 0, where_width = 0;
  for (const Producer& producer : found.producers) {
    what_width = std::max(what_width, what_text(producer, way).size());
    where_width = std::max(where_width, where_text(producer).size());
  }
  for (const Producer& producer : found.producers) {
    const std::string rows = producer.rows.empty() ? "all rows" : rows_text(producer.rows);
    const std::string from =
        producer.from_inf.empty() ? "" : fmt::format("  from INF of {}", fmt::join(producer.from_inf, ", "));
    say("  {:3}  {:{}}  {:{}}  {}{}\n", code_name(producer.code), what_text(producer, way), what_width,
        where_text(producer), where_width, rows, from);
  }
  const char* const what = way == Way::forward ? "operation" : "derivative";
  say("{}\n", paint(Paint::faint, fmt::format("propagated by {} other {}{}", found.passed_on, what,
                                              found.passed_on == 1 ? "" : "s")));
}

/// `left_out`: Inf that is benign was.
void print_clean(bool left_out) {
  say("  {}\n", paint(Paint::good, left_out ? "no NaN, and no Inf except benign ones" : "no NaN and no Inf"));
}

void print_provenance(const std::string& name, const Provenance& found, bool left_out) {
  say("{}, {} samples, {} operations\n", paint(Paint::heading, name), found.samples, found.operations);
  if (found.producers.empty()) return print_clean(left_out);
  print_producers(found, Way::forward);
  for (const Provenance::Output& output : found.outputs) say("{} is bad in {}\n", output.name, rows_text(output.rows));
  if (found.outputs.empty()) say("no output has a bad sample\n");
}

void print_backward(const Provenance& found, bool left_out) {
  say("{}, {} derivatives\n", paint(Paint::heading, "backward"), found.operations);
  if (found.producers.empty()) return print_clean(left_out);
  print_producers(found, Way::backward);
  for (const Provenance::Output& output : found.outputs)
    say("the gradient of {} is bad in {}\n", output.name, rows_text(output.rows));
  if (found.outputs.empty()) say("no gradient of an input or parameter is bad\n");
}

bool is_expected(const Producer& producer, const std::vector<std::string>& benign) {
  return producer.code == err::inf && std::any_of(benign.begin(), benign.end(), [&](const std::string& pattern) {
           return matches_glob(pattern, producer.name) || matches_glob(pattern, producer.location);
         });
}

bool leave_out(Provenance& found, const std::vector<std::string>& benign) {
  auto& all = found.producers;
  const size_t count = all.size();
  all.erase(
      std::remove_if(all.begin(), all.end(), [&](const Producer& producer) { return is_expected(producer, benign); }),
      all.end());
  return all.size() < count;
}

Json to_json(const Provenance& found) {
  static constexpr const char* kinds[] = {"input", "held", "operation", "sum"};
  Json producers = Json::array(), outputs = Json::array();
  for (const Producer& producer : found.producers) {
    Json entry = {{"kind", kinds[static_cast<size_t>(producer.kind)]},
                  {"name", producer.name},
                  {"code", code_name(producer.code)},
                  {"count", producer.rows.empty() ? found.samples : static_cast<int64_t>(producer.rows.size())},
                  {"rows", producer.rows.empty() ? Json() : Json(producer.rows)}};
    if (!producer.location.empty()) entry["location"] = producer.location;
    if (!producer.source.file.empty()) {
      entry["file"] = producer.source.file;
      entry["line"] = producer.source.line;
    }
    if (!producer.from_inf.empty()) entry["from_inf"] = producer.from_inf;
    producers.push_back(std::move(entry));
  }
  for (const Provenance::Output& output : found.outputs)
    outputs.push_back({{"name", output.name}, {"rows", output.rows}});
  return {{"samples", found.samples},
          {"operations", found.operations},
          {"producers", producers},
          {"passed_on", found.passed_on},
          {"outputs", outputs}};
}

/// Forward, and where it was asked for, backward.
struct ProvenanceReport {
  Provenance forward;
  std::optional<Provenance> backward;
};

std::vector<at::Tensor> gradients_of(const ExplainCommand& options, const std::vector<std::string>& outputs) {
  std::vector<at::Tensor> gradients;
  if (options.gradients.empty()) return gradients;
  gradients.resize(outputs.size());
  for (const std::string& text : options.gradients) {
    const auto [name, source] = split_assignment(text, "--gradient");
    const auto output = std::find(outputs.begin(), outputs.end(), name);
    if (output == outputs.end())
      throw UsageError(fmt::format("--gradient {}: {} has no such output; it has {}", name, options.call.policy,
                                   fmt::join(outputs, ", ")));
    gradients[static_cast<size_t>(output - outputs.begin())] = read_input(source, parse_device(options.call.device));
  }
  return gradients;
}

// A policy: its captured graph

ProvenanceReport of_policy(const ExplainCommand& options, std::string& name) {
  PreparedCall call = prepare_call(options.call, options.json);
  name = call.policy.name();
  if (options.backward)
    for (at::Tensor& input : call.inputs)
      if (input.is_floating_point() || input.is_complex()) input = input.detach().requires_grad_(true);
  call.policy.run(call.inputs, call.options);
  const std::vector<CapturedGraph> graphs = call.policy.graphs();
  if (graphs.empty())
    throw PolicyError(
        fmt::format("{} is not one graph, so triage cannot run its operations one by one; the graph break:\n  {}",
                    options.call.policy, fmt::join(call.policy.graph_breaks(), "\n  ")));
  const Signature signature = call.policy.signature();
  std::vector<at::Tensor> inputs = call.inputs;
  for (at::Tensor& value :
       policy::with_first_state(signature, call.inputs, policy::param_tensors(signature, call.options.params)))
    inputs.push_back(std::move(value));
  const graph::Graph& graph = *graphs.back().graph;
  ProvenanceReport found{provenance(graph, inputs), {}};
  if (options.backward)
    found.backward = gradient_provenance(
        graph, inputs, gradients_of(options, graph::output_names(graph.output_names(), graph.outputs().size())));
  return found;
}

ProvenanceReport of_model(const ExplainCommand& options) {
  ModelCall call = prepare_model(options.call);
  ProvenanceReport found{provenance(call.model, call.arguments), {}};
  if (options.backward)
    found.backward = gradient_provenance(call.model, std::move(call.arguments), gradients_of(options, {"output"}));
  return found;
}

}  // namespace

int explain_provenance(const ExplainCommand& options) {
  const bool is_model = is_model_file(options.call.policy);
  std::string name = options.call.policy;
  ProvenanceReport found = is_model ? of_model(options) : of_policy(options, name);
  const bool left_out = leave_out(found.forward, options.benign);
  const bool left_out_backward = found.backward && leave_out(*found.backward, options.benign);
  if (options.json) {
    Json json = {{is_model ? "model" : "policy", name}};
    json.update(to_json(found.forward));
    if (found.backward) json["backward"] = to_json(*found.backward);
    print_json(json);
    return 0;
  }
  print_provenance(name, found.forward, left_out);
  if (found.backward) print_backward(*found.backward, left_out_backward);
  return 0;
}

}  // namespace triage::cli
