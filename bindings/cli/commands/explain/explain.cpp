#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/graph.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bindings/cli/calls/call.h"
#include "bindings/cli/calls/model_call.h"
#include "bindings/cli/calls/param_text.h"
#include "bindings/cli/calls/step_times.h"
#include "bindings/cli/commands.h"
#include "bindings/cli/commands/explain/provenance.h"
#include "bindings/cli/terminal.h"
#include "runtime/backends/fused/fused_group.h"
#include "runtime/backends/fused/loops/groups_text.h"
#include "runtime/backends/unmasked_rows.h"
#include "runtime/graph/text/describe.h"

namespace triage::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr double seconds_of_timing = 0.02;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  size_t start = 0;
  for (size_t end; (end = text.find('\n', start)) != std::string::npos; start = end + 1)
    lines.push_back(text.substr(start, end - start));
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

std::vector<std::string> operators_of(const graph::Graph& graph) {
  std::vector<std::string> names;
  for (const auto& node : graph.nodes()) names.push_back(graph::op_name(node->op));
  return names;
}

/// The times of this graph, where it ran in these parts; else null.
const fused::GraphTime* times_of(const graph::Graph& graph, const std::vector<fused::FusionGroup>& parts,
                                 const std::vector<fused::GraphTime>& times) {
  const auto is_it = [&](const fused::GraphTime& time) {
    bool same = time.graph == graph.name() && time.parts.size() == parts.size();
    for (size_t i = 0; same && i < parts.size(); ++i)
      same = parts[i].same_as || time.parts[i].label == fused::label_of(parts[i]);
    return same;
  };
  const auto found = std::find_if(times.begin(), times.end(), is_it);
  return found == times.end() ? nullptr : &*found;
}

/// The fusion groups that a call with inputs on this graph's device runs, each on the CPU with the listing of its tape,
/// and where the graph was timed with its times.
std::string loops_text(const graph::Graph& graph, const std::vector<fused::GraphTime>& times) {
  c10::Device device = at::kCPU;
  for (const auto& input : graph.inputs())
    if (input.value->meta && !input.value->meta->device.is_cpu()) device = input.value->meta->device;
  const std::vector<fused::FusionGroup> parts = fused::cut(graph, device);
  const fused::GraphTime* const time = times_of(graph, parts, times);
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    text += fused::text_of(parts, i);
    if (time) text += fmt::format("  took   {:.3g} us\n", time->parts[i].micros);
    if (time && !time->parts[i].listing.empty())
      text += fused::text_of(time->parts[i], time->micros);
    else if (device.is_cpu() && parts[i].fused && !parts[i].same_as)
      text += fused::listing_of(parts[i]);
  }
  if (time)
    text += fmt::format("lines of the script: us, share of {:.3g} us\n{}", time->micros,
                        fused::lines_text(fused::times_of_lines({*time}), time->micros));
  return text;
}

Json graph_json(const CapturedGraph& captured, const ExplainCommand& options,
                const std::vector<fused::GraphTime>& times) {
  Json json = {{"ops", captured.graph->nodes().size()},
               {"op_names", operators_of(*captured.graph)},
               {"graph", graph::print(*captured.graph)},
               {"guards", lines_of(captured.guards)}};
  if (options.loops) json["loops"] = loops_text(*captured.graph, times);
  if (options.decomposed) json["decomposed"] = graph::print(graph::decompose(*captured.graph));
  return json;
}

Json breaks_json(const std::vector<BreakReport>& breaks) {
  Json list = Json::array();
  for (const BreakReport& one : breaks)
    list.push_back({{"id", one.id},
                    {"what", one.what},
                    {"explanation", one.explanation},
                    {"hint", one.hint},
                    {"file", one.where.file},
                    {"line", one.where.line},
                    {"user_code", one.user_code}});
  return list;
}

void print_graph(const CapturedGraph& captured, size_t index, const ExplainCommand& options,
                 const std::vector<fused::GraphTime>& times) {
  say("\n{}\n{}\n", paint(Paint::heading, fmt::format("graph {}", index)), graph::print(*captured.graph));
  if (options.decomposed) {
    graph::Graph decomposed = graph::decompose(*captured.graph);
    say("\n{}\n{}\n",
        paint(Paint::heading, fmt::format("graph {} in plain ATen, {} ops", index, decomposed.nodes().size())),
        graph::print(decomposed));
  }
  if (options.loops)
    say("\n{}\n{}\n", paint(Paint::heading, fmt::format("fusion groups of graph {}", index)),
        PreformattedText{loops_text(*captured.graph, times)});
  if (options.guards && !captured.guards.empty()) {
    say("\n{}\n", paint(Paint::heading, fmt::format("guards of graph {}", index)));
    for (const std::string& line : lines_of(captured.guards)) say("  {}\n", line);
  }
}

void print_operators(const std::vector<CapturedGraph>& graphs) {
  if (graphs.empty()) return;
  say("\n{}\n", paint(Paint::heading, "ops per graph"));
  for (size_t i = 0; i < graphs.size(); ++i)
    say("  {}: {}\n", i + 1, fmt::format("{}", fmt::join(operators_of(*graphs[i].graph), ", ")));
}

/// Each input with its declared type, `any` where it has none.
std::vector<std::pair<std::string, std::string>> ranged_outputs(const Signature& signature) {
  std::vector<std::pair<std::string, std::string>> outputs;
  for (size_t i = 0; i < signature.output_ranges.size(); ++i)
    if (signature.output_ranges[i]) outputs.emplace_back(signature.outputs[i], signature.output_ranges[i]->text());
  return outputs;
}

std::vector<std::pair<std::string, std::string>> typed_inputs(const Signature& signature) {
  std::vector<std::pair<std::string, std::string>> inputs;
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const bool typed = i < signature.input_types.size() && signature.input_types[i];
    inputs.emplace_back(signature.inputs[i], typed ? signature.input_types[i]->text() : "any");
  }
  return inputs;
}

std::string cache_text(const CacheStatistics& cache) {
  std::string text = fmt::format("{:.1f} kB", static_cast<double>(cache.bytes) / 1024);
  if (cache.retired > 0) text += fmt::format("; graphs that the script's own writes retired: {}", cache.retired);
  return text;
}

/// Asked of a second call, whose inputs require grad. A script that breaks graphs is not run once more.
std::optional<UnmaskedRows> unmasked_rows_of(const PreparedCall& call, const std::vector<BreakReport>& breaks) {
  if (!breaks.empty()) return unmasked_by_break(breaks.front().what, breaks.front().where);
  std::vector<at::Tensor> inputs;
  for (const at::Tensor& input : call.inputs)
    inputs.push_back(at::isFloatingType(input.scalar_type()) ? input.detach().requires_grad_() : input);
  call.policy.run(inputs, call.options);
  return call.policy.unmasked_rows(inputs, call.options.params);
}

}  // namespace

int run(const ExplainCommand& options) {
  if (options.provenance) return explain_provenance(options);
  if (!options.benign.empty()) throw UsageError("--benign needs --provenance");
  if (options.backward) throw UsageError("--backward needs --provenance");
  if (is_model_file(options.call.policy))
    throw UsageError(fmt::format("{} is a TorchScript model, which needs --provenance; a policy is a .lua file",
                                 options.call.policy));
  PreparedCall call = prepare_call(options.call, options.json);
  call.policy.run(call.inputs, call.options);
  std::vector<CapturedGraph> graphs = graphs_of(call.policy);
  const std::vector<BreakReport> breaks = call.policy.breaks();
  size_t operations = 0;
  for (const CapturedGraph& captured : graphs) operations += captured.graph->nodes().size();
  const Signature signature = call.policy.signature();
  const auto inputs = typed_inputs(signature);
  const CacheStatistics cache = call.policy.cache();
  const CompileTimes times = call.policy.compile_times();
  const std::vector<fused::GraphTime> steps =
      options.loops ? time_steps([&] { call.policy.run(call.inputs, call.options); }, seconds_of_timing)
                    : std::vector<fused::GraphTime>{};
  const std::optional<UnmaskedRows> unmasked = unmasked_rows_of(call, breaks);
  if (options.json) {
    Json inputs_json = Json::object();
    for (const auto& [name, type] : inputs) inputs_json[name] = type;
    Json params_json = Json::object();
    for (const Param& param : signature.params) params_json[param.name] = to_json(param);
    Json ranges_json = Json::object();
    for (const auto& [name, range] : ranged_outputs(signature)) ranges_json[name] = range;
    Json codes_json = Json::object();
    for (const CodeName& one : signature.codes) codes_json[one.name] = to_int(one.code);
    Json list = Json::array();
    for (const CapturedGraph& captured : graphs) list.push_back(graph_json(captured, options, steps));
    Json report = {
        {"policy", call.policy.name()},
        {"backend", options.call.backend},
        {"inputs", inputs_json},
        {"params", params_json},
        {"output_ranges", ranges_json},
        {"codes", codes_json},
        {"graphs", list},
        {"graph_breaks", call.policy.graph_breaks()},
        {"breaks", breaks_json(breaks)},
        {"ops", operations},
        {"unmasked_rows",
         unmasked ? Json{{"reason", unmasked->reason}, {"file", unmasked->where.file}, {"line", unmasked->where.line}}
                  : Json()},
        {"compile_times", {{"capture", times.capture}, {"backend", times.backend}}},
        {"fused_loops", loops_json(cache.loops)},
        {"cache",
         {{"graphs", cache.graphs}, {"segments", cache.segments}, {"retired", cache.retired}, {"bytes", cache.bytes}}}};
    if (options.loops) report["times"] = to_json(steps, fused::times_of_lines(steps), micros_of(steps));
    print_json(report);
    return 0;
  }
  say("{}\n  graphs        {}\n  graph breaks  {}\n  ops           {}\n  cache         {}\n"
      "  compile time  capture {:.3f} ms, backend {:.3f} ms\n",
      paint(Paint::heading, call.policy.name()), graphs.size(), breaks.size(), operations, cache_text(cache),
      times.capture * 1e3, times.backend * 1e3);
  say("  backend       {}\n", options.call.backend);
  say("  masked rows   {}\n",
      unmasked ? "may reach gradients, because " + with_place(*unmasked) : "none reaches a gradient");
  if (cache.loops.count() > 0) say("  fused loops   {}\n", loops_text(cache.loops));
  for (const auto& [name, type] : inputs)
    if (type != "any") say("  input         {}: {}\n", name, type);
  for (const Param& param : signature.params) say("  param         {} = {}\n", param.name, param_text(param));
  for (const auto& [name, range] : ranged_outputs(signature)) say("  output        {}: {}\n", name, range);
  for (const CodeName& one : signature.codes) say("  code          {} = {}\n", one.name, to_int(one.code));
  print_breaks(breaks);
  print_operators(graphs);
  for (size_t i = 0; i < graphs.size(); ++i) print_graph(graphs[i], i + 1, options, steps);
  return 0;
}

}  // namespace triage::cli
