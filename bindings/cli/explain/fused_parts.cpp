#include "bindings/cli/explain/fused_parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "runtime/backends/fused/regions.h"
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

/// `{0}`, `{1}`, ... of the code are operands.
std::string code_text(const LoopValue& value) {
  std::string code = value.code;
  for (size_t i = 0; i < value.operands.size(); ++i) {
    const std::string hole = fmt::format("{{{}}}", i), name = fmt::format("v{}", value.operands[i]);
    for (size_t at = 0; (at = code.find(hole, at)) != std::string::npos; at += name.size())
      code.replace(at, hole.size(), name);
  }
  return code;
}

std::string operation_text(const fused::Part& part, const LoopValue& value) {
  switch (value.kind) {
    case LoopValue::Kind::input: {
      const size_t argument = part.loops.inputs[static_cast<size_t>(value.slot)].argument;
      return "load " + graph::describe(*part.inputs[argument]);
    }
    case LoopValue::Kind::map:
      return code_text(value);
    case LoopValue::Kind::reduce:
      return fmt::format("reduce {} by {} from {}", code_text(value), value.join, value.start);
    case LoopValue::Kind::classify:
      return fmt::format("NaN and Inf among v{}, whose largest magnitude is v{}", value.operands[0], value.operands[1]);
  }
  return {};
}

std::string body_text(const fused::Part& part) {
  std::string text = "  body, for each row\n";
  for (size_t i = 0; i < part.loops.values.size(); ++i) {
    const LoopValue& value = part.loops.values[i];
    text += fmt::format("    v{} = {}  # {}, {}\n", i, operation_text(part, value), value.type,
                        place_text(part.loops, value));
  }
  for (size_t i = 0; i < part.loops.outputs.size(); ++i)
    text += fmt::format("    store v{} to {}\n", part.loops.outputs[i].value, graph::describe(*part.outputs[i]));
  return text;
}

std::string part_text(const fused::Part& part) {
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

}  // namespace

std::string fused_parts_text(const graph::Graph& graph) {
  std::string text;
  for (const fused::Part& part : fused::cut(graph)) text += part_text(part);
  return text;
}

}  // namespace triage::cli
