#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/graph.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bindings/cli/call.h"
#include "bindings/cli/commands.h"
#include "bindings/cli/explain/provenance.h"
#include "bindings/cli/terminal.h"
#include "runtime/backends/fused/fusion_groups.h"
#include "runtime/backends/fused/loops/expression.h"
#include "runtime/graph/describe.h"

namespace triage::cli {
namespace {

using fused::Loops;
using fused::LoopValue;
using fused::Place;
using fused::TensorForm;

std::string declared(const graph::Value& value, const std::string& note) {
  std::string text = graph::describe(value);
  if (value.meta) text += ": " + graph::type_text(*value.meta);
  return note.empty() ? text : text + "  " + note;
}

/// How a tensor lies beside the rows that the loops go over.
std::string form_text(const TensorForm& form) {
  switch (form.kind) {
    case TensorForm::Kind::number:
      return "one number";
    case TensorForm::Kind::row:
      return "one value a row";
    case TensorForm::Kind::element:
      return fmt::format("a row is [{}]", fmt::join(form.trailing, ", "));
    case TensorForm::Kind::column:
      return fmt::format("[{}], the same for all rows", fmt::join(form.trailing, ", "));
    case TensorForm::Kind::record:
      return fmt::format("flags, {} words a row", form.words);
  }
  return {};
}

std::string place_text(const Loops& loops, const LoopValue& value) {
  if (value.place == Place::number) return "one";
  if (value.place == Place::row) return "a row";
  return fmt::format("each of [{}]", fmt::join(loops.extents[static_cast<size_t>(value.extent)].sizes, ", "));
}

/// What a reduction joins by, as it is called in loops.
const char* join_text(fused::Join join) {
  switch (join) {
    case fused::Join::sum:
      return "+";
    case fused::Join::product:
      return "*";
    case fused::Join::largest:
      return "max";
    case fused::Join::smallest:
      return "min";
    case fused::Join::any:
      return "|";
  }
  return "";
}

std::string operation_text(const fused::FusionGroup& part, const std::vector<bool>& inlined, fused::Ref ref) {
  const LoopValue& value = part.loops.values[static_cast<size_t>(ref)];
  const auto code = [&] {
    return fused::expression(part.loops, inlined, ref, [](fused::Ref operand) { return fmt::format("v{}", operand); });
  };
  switch (value.kind) {
    case LoopValue::Kind::input: {
      const size_t argument = part.loops.inputs[static_cast<size_t>(value.slot)].argument;
      return "load " + graph::describe(*part.inputs[argument]);
    }
    case LoopValue::Kind::map:
      return code();
    case LoopValue::Kind::reduce:
      return fmt::format("reduce {} by {}", code(), join_text(value.join));
    case LoopValue::Kind::classify:
      return fmt::format("NaN and Inf among v{}, whose largest magnitude is v{}", value.operands[0], value.operands[1]);
  }
  return {};
}

std::string body_text(const fused::FusionGroup& part) {
  std::string text = "  body, for each row\n";
  const std::vector<bool> inlined = fused::inlined_values(part.loops);
  for (size_t i = 0; i < part.loops.values.size(); ++i) {
    const LoopValue& value = part.loops.values[i];
    if (inlined[i]) continue;
    text += fmt::format("    v{} = {}  # {}, {}\n", i, operation_text(part, inlined, static_cast<fused::Ref>(i)),
                        fused::type_code(value), place_text(part.loops, value));
  }
  for (size_t i = 0; i < part.loops.outputs.size(); ++i)
    text += fmt::format("    store v{} to {}\n", part.loops.outputs[i].value, graph::describe(*part.outputs[i]));
  return text;
}

std::string part_text(const fused::FusionGroup& part) {
  std::vector<std::string> operators, reads(part.inputs.size()), writes(part.outputs.size());
  for (const auto& node : part.graph.nodes()) operators.push_back(graph::op_name(node->op));
  if (part.fused) {
    for (const auto& input : part.loops.inputs) reads[input.argument] = form_text(input.form);
    for (size_t i = 0; i < writes.size(); ++i) writes[i] = form_text(part.loops.outputs[i].form);
  }
  std::string text =
      fmt::format("{}: {}\n", part.fused ? "loops over rows" : "interpreter", fmt::join(operators, ", "));
  for (size_t i = 0; i < reads.size(); ++i) text += "  reads  " + declared(*part.inputs[i], reads[i]) + "\n";
  for (size_t i = 0; i < writes.size(); ++i) text += "  writes " + declared(*part.outputs[i], writes[i]) + "\n";
  return part.fused ? text + body_text(part) : text;
}

/// What the `fused` backend makes of a graph, as text: the parts that it is cut into, in their order; of each the operators, what
/// it reads and writes with sizes, and of loops over rows the body, a line a value.
std::string fused_parts_text(const graph::Graph& graph) {
  std::string text;
  for (const fused::FusionGroup& part : fused::cut(graph)) text += part_text(part);
  return text;
}

using Json = nlohmann::ordered_json;

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

Json graph_json(const CapturedGraph& captured, const ExplainCommand& options) {
  Json json = {{"ops", captured.graph->nodes().size()},
               {"op_names", operators_of(*captured.graph)},
               {"graph", graph::print(*captured.graph)},
               {"guards", lines_of(captured.guards)}};
  if (options.loops) json["loops"] = fused_parts_text(*captured.graph);
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

void print_graph(const CapturedGraph& captured, size_t index, const ExplainCommand& options) {
  say("\n{}\n{}\n", paint(Paint::heading, fmt::format("graph {}", index)), graph::print(*captured.graph));
  if (options.decomposed) {
    graph::Graph decomposed = graph::decompose(*captured.graph);
    say("\n{}\n{}\n",
        paint(Paint::heading, fmt::format("graph {} in plain ATen, {} ops", index, decomposed.nodes().size())),
        graph::print(decomposed));
  }
  if (options.loops)
    say("\n{}\n{}\n", paint(Paint::heading, fmt::format("fusion groups of graph {}", index)),
        fused_parts_text(*captured.graph));
  if (options.guards && !captured.guards.empty()) {
    say("\n{}\n", paint(Paint::heading, fmt::format("guards of graph {}", index)));
    for (const std::string& line : lines_of(captured.guards)) say("  {}\n", line);
  }
}

void print_operators(const std::vector<CapturedGraph>& graphs) {
  if (graphs.empty()) return;
  say("\n{}\n", paint(Paint::heading, "ops per graph"));
  for (size_t i = 0; i < graphs.size(); ++i) say("  {}: {}\n", i + 1, fmt::join(operators_of(*graphs[i].graph), ", "));
}

/// Each input with its declared type, `any` where it has none.
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

}  // namespace

int run(const ExplainCommand& options) {
  if (options.provenance) return explain_provenance(options.call, options.benign, options.json);
  if (!options.benign.empty()) throw UsageError("--benign needs --provenance");
  if (is_model_file(options.call.policy))
    throw UsageError(fmt::format("{} is a TorchScript model, which needs --provenance; a policy is a .lua file",
                                 options.call.policy));
  CallOptions described = options.call;
  if (described.compiler.empty()) described.compiler = "off";  // nothing runs often enough to be worth a compilation
  Call call = prepare_call(described, options.json);
  call.policy.run(call.inputs, call.options);
  std::vector<CapturedGraph> graphs = graphs_of(call.policy);
  const std::vector<BreakReport> breaks = call.policy.breaks();
  size_t operations = 0;
  for (const CapturedGraph& captured : graphs) operations += captured.graph->nodes().size();
  const auto inputs = typed_inputs(call.policy.signature());
  const CacheStatistics cache = call.policy.cache();
  const CompileTimes times = call.policy.compile_times();
  if (options.json) {
    Json inputs_json = Json::object();
    for (const auto& [name, type] : inputs) inputs_json[name] = type;
    Json list = Json::array();
    for (const CapturedGraph& captured : graphs) list.push_back(graph_json(captured, options));
    print_json({{"policy", call.policy.name()},
                {"backend", options.call.backend},
                {"inputs", inputs_json},
                {"graphs", list},
                {"graph_breaks", call.policy.graph_breaks()},
                {"breaks", breaks_json(breaks)},
                {"ops", operations},
                {"compile_times", {{"capture", times.capture}, {"backend", times.backend}}},
                {"fused_loops", loops_json(cache.loops)},
                {"cache",
                 {{"graphs", cache.graphs},
                  {"segments", cache.segments},
                  {"retired", cache.retired},
                  {"bytes", cache.bytes}}}});
    return 0;
  }
  say("{}\n  graphs        {}\n  graph breaks  {}\n  ops           {}\n  cache         {}\n"
      "  compile time  capture {:.3f} ms, backend {:.3f} ms\n",
      paint(Paint::heading, call.policy.name()), graphs.size(), breaks.size(), operations, cache_text(cache),
      times.capture * 1e3, times.backend * 1e3);
  say("  backend       {}\n", options.call.backend);
  if (cache.loops.count() > 0) say("  fused loops   {}\n", loops_text(cache.loops));
  for (const auto& [name, type] : inputs)
    if (type != "any") say("  input         {}: {}\n", name, type);
  print_breaks(breaks);
  print_operators(graphs);
  for (size_t i = 0; i < graphs.size(); ++i) print_graph(graphs[i], i + 1, options);
  return 0;
}

}  // namespace triage::cli
