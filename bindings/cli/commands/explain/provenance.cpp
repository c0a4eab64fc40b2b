#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/config.h>
#include <triage/provenance.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bindings/cli/calls/model_call.h"
#include "bindings/cli/commands.h"
#include "bindings/cli/commands/explain/provenance.h"
#include "bindings/cli/terminal.h"
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

std::string what_text(const Producer& producer) {
  switch (producer.kind) {
    case Producer::Kind::input:
      return "input " + producer.name;
    case Producer::Kind::held:
      return "held: " + producer.name;
    default:
      return producer.name;
  }
}

std::string where_text(const Producer& producer) {
  std::string where = producer.location;
  if (!producer.source.file.empty())
    where += fmt::format("{}{}:{}", where.empty() ? "" : "  ", producer.source.file, producer.source.line);
  return where;
}

/// `left_out`: Inf that is benign was.
void print_provenance(const std::string& name, const Provenance& found, bool left_out) {
  say("{}, {} samples, {} operations\n", paint(Paint::heading, name), found.samples, found.operations);
  if (found.producers.empty()) {
    const char* clean = left_out ? "no NaN, and no Inf except benign ones" : "no NaN and no Inf";
    say("  {}\n", paint(Paint::good, clean));
    return;
  }
  size_t what_width = 0, where_width = 0;
  for (const Producer& producer : found.producers) {
    what_width = std::max(what_width, what_text(producer).size());
    where_width = std::max(where_width, where_text(producer).size());
  }
  for (const Producer& producer : found.producers) {
    const std::string rows = producer.rows.empty() ? "all rows" : rows_text(producer.rows);
    const std::string from =
        producer.from_inf.empty() ? "" : fmt::format("  from INF of {}", fmt::join(producer.from_inf, ", "));
    say("  {:3}  {:{}}  {:{}}  {}{}\n", code_name(producer.code), what_text(producer), what_width, where_text(producer),
        where_width, rows, from);
  }
  say("{}\n", paint(Paint::faint, fmt::format("propagated by {} other operation{}", found.passed_on,
                                              found.passed_on == 1 ? "" : "s")));
  for (const Provenance::Output& output : found.outputs) say("{} is bad in {}\n", output.name, rows_text(output.rows));
  if (found.outputs.empty()) say("no output has a bad sample\n");
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

Json to_json(const char* kind, const std::string& name, const Provenance& found) {
  static constexpr const char* kinds[] = {"input", "held", "operation"};
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
  return {{kind, name},
          {"samples", found.samples},
          {"operations", found.operations},
          {"producers", producers},
          {"passed_on", found.passed_on},
          {"outputs", outputs}};
}

// A policy: its captured graph

Provenance of_policy(const CallOptions& options, bool json, std::string& name) {
  Call call = prepare_call(options, json);
  name = call.policy.name();
  call.policy.run(call.inputs, call.options);
  const std::vector<CapturedGraph> graphs = call.policy.graphs();
  if (graphs.empty())
    throw PolicyError(
        fmt::format("{} is not one graph, so triage cannot run its operations one by one; the graph break:\n  {}",
                    options.policy, fmt::join(call.policy.graph_breaks(), "\n  ")));
  const Signature signature = call.policy.signature();
  std::vector<at::Tensor> inputs = call.inputs;
  for (at::Tensor& value :
       policy::with_first_state(signature, call.inputs, policy::param_tensors(signature, call.options.params)))
    inputs.push_back(std::move(value));
  return provenance(*graphs.back().graph, inputs);
}

Provenance of_model(const CallOptions& options) {
  ModelCall call = prepare_model(options);
  return provenance(call.model, std::move(call.arguments));
}

}  // namespace

int explain_provenance(const CallOptions& options, const std::vector<std::string>& benign, bool json) {
  const bool is_model = is_model_file(options.policy);
  std::string name = options.policy;
  Provenance found = is_model ? of_model(options) : of_policy(options, json, name);
  const bool left_out = leave_out(found, benign);
  if (json)
    print_json(to_json(is_model ? "model" : "policy", name, found));
  else
    print_provenance(name, found, left_out);
  return 0;
}

}  // namespace triage::cli
