#include "runtime/backends/fused/loops/groups_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runtime/backends/fused/loops/expression.h"
#include "runtime/backends/fused/outside_loops.h"
#include "runtime/graph/text/describe.h"
#include "runtime/messages/printable.h"

namespace triage::fused {
namespace {

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
const char* join_text(Join join) {
  switch (join) {
    case Join::sum:
      return "+";
    case Join::product:
      return "*";
    case Join::largest:
      return "max";
    case Join::smallest:
      return "min";
    case Join::any:
      return "|";
  }
  return "";
}

/// "by the host: floor_divide v3"
std::string computed_text(const HostNumber& number, const LoopValue& value) {
  std::string text = "by the host: " + number.text;
  for (const Ref operand : value.operands) text += fmt::format(" v{}", operand);
  return text;
}

std::string operation_text(const FusionGroup& part, const std::vector<bool>& inlined, Ref ref) {
  const LoopValue& value = part.loops.values[static_cast<size_t>(ref)];
  const auto code = [&] {
    return expression(part.loops, inlined, ref, [](Ref operand) { return fmt::format("v{}", operand); });
  };
  switch (value.kind) {
    case LoopValue::Kind::input: {
      const LoopInput& input = part.loops.inputs[static_cast<size_t>(value.slot)];
      return input.computed ? computed_text(*input.computed, value)
                            : "load " + graph::describe(*part.inputs[input.argument]);
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

std::string body_text(const FusionGroup& part) {
  std::string text = "  body, for each row\n";
  const std::vector<bool> inlined = inlined_values(part.loops);
  for (size_t i = 0; i < part.loops.values.size(); ++i) {
    const LoopValue& value = part.loops.values[i];
    if (inlined[i]) continue;
    text += fmt::format("    v{} = {}  # {}, {}\n", i, operation_text(part, inlined, static_cast<Ref>(i)),
                        type_code(value), place_text(part.loops, value));
  }
  for (size_t i = 0; i < part.loops.outputs.size(); ++i)
    text += fmt::format("    store v{} to {}\n", part.loops.outputs[i].value, graph::describe(*part.outputs[i]));
  return text;
}

}  // namespace

std::string lines_of(const FusionGroup& part) {
  Source first;
  int last = 0;
  for (const auto& node : part.graph.nodes()) {
    const Source& source = node->source;
    if (source.file.empty() || (!first.file.empty() && source.file != first.file)) continue;
    first = {source.file, first.file.empty() ? source.line : std::min(first.line, source.line)};
    last = std::max(last, source.line);
  }
  if (first.file.empty()) return "";
  const std::string file = messages::one_line(first.file);
  return last == first.line ? fmt::format("{}:{}", file, last) : fmt::format("{}:{}-{}", file, first.line, last);
}

std::string label_of(const FusionGroup& part) {
  constexpr size_t most_shown = 4;
  const auto& nodes = part.graph.nodes();
  std::string operators;
  for (size_t i = 0; i < nodes.size() && i < most_shown; ++i)
    operators += (i ? ", " : "") + graph::op_name(nodes[i]->op);
  if (nodes.size() > most_shown) operators += fmt::format(" and {} more", nodes.size() - most_shown);
  const std::string lines = lines_of(part);
  return part.graph.name() + ": " + operators + (lines.empty() ? "" : " (" + lines + ")");
}

std::string text_of(const std::vector<FusionGroup>& groups, size_t index) {
  const FusionGroup& part = groups[index];
  const FusionGroup& code = part.same_as ? groups[*part.same_as] : part;
  std::vector<std::string> operators, reads(part.inputs.size()), writes(part.outputs.size());
  for (const auto& node : code.graph.nodes()) operators.push_back(graph::op_name(node->op));
  if (code.fused) {
    for (const auto& input : code.loops.inputs)
      if (!input.computed) reads[input.argument] = form_text(input.form);
    for (size_t i = 0; i < writes.size(); ++i) writes[i] = form_text(code.loops.outputs[i].form);
  }
  std::string text =
      fmt::format("{}: {}\n", part.fused ? "loops over rows" : "interpreter", fmt::join(operators, ", "));
  if (part.same_as && !part.outputs.empty())
    text += fmt::format("  runs   the code that writes {}\n", graph::describe(*groups[*part.same_as].outputs[0]));
  for (size_t i = 0; i < reads.size(); ++i) text += "  reads  " + declared(*part.inputs[i], reads[i]) + "\n";
  for (size_t i = 0; i < writes.size(); ++i) text += "  writes " + declared(*part.outputs[i], writes[i]) + "\n";
  if (part.fused) return part.same_as ? text : text + body_text(part);
  for (const auto& node : code.graph.nodes())
    text += fmt::format("  why    {}: {}\n", graph::op_name(node->op), why_outside(*node));
  return text;
}

std::string text_of(const std::vector<FusionGroup>& groups) {
  std::string text;
  for (size_t i = 0; i < groups.size(); ++i) text += text_of(groups, i);
  return text;
}

}  // namespace triage::fused
