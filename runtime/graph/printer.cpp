#include <fmt/format.h>
#include <triage/graph.h>

#include "runtime/graph/argument_type.h"
#include "runtime/graph/describe.h"
#include "runtime/graph/tensor_text.h"

namespace triage::graph {
namespace {

// Lines longer than this do not push the comments of the others to the right.
constexpr size_t kCommentColumn = 96;

struct Line {
  std::string text;
  std::string comment;
};

std::string declaration(const Value& value) {
  std::string text = describe(value);
  if (value.meta) text += ": " + string_literal(type_text(*value.meta));
  return value.is_flags ? text + " flags" : text;
}

std::string operand_text(const Operand& operand, const ArgumentType& type, const Namer& name) {
  if (const Value* value = operand.value()) return name(*value);
  if (const auto* items = operand.list()) {
    std::string text;
    for (const auto& item : *items) text += (text.empty() ? "" : ", ") + operand_text(item, type, name);
    return "[" + text + "]";
  }
  return literal(*operand.constant(), type);
}

bool is_default(const c10::Argument& argument, const Operand& operand) {
  return argument.default_value() && operand.constant() &&
         same_constant(*argument.default_value(), *operand.constant());
}

std::string arguments_text(const Node& node, const Namer& name) {
  std::string text;
  bool positional = true;
  const auto& arguments = node.op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& argument = arguments[i];
    ArgumentType type = type_of(argument);
    positional =
        positional && !argument.kwarg_only() && !argument.default_value() && (i < 2 || type.kind == Kind::tensor);
    if (is_default(argument, node.operands[i])) continue;
    if (!text.empty()) text += ", ";
    if (!positional) text += argument.name() + "=";
    text += operand_text(node.operands[i], type, name);
  }
  return text;
}

/// The script line as a comment. A file name may hold anything but must stay on its line.
std::string source_text(const Source& source) {
  if (source.file.empty() && source.line == 0) return "";
  std::string text = string_literal(source.file);  // escapes line ends and backslashes
  return fmt::format("# {}:{}", text.substr(1, text.size() - 2), source.line);
}

Line node_line(const Node& node) {
  std::string results;
  for (const Value* result : node.results) results += (results.empty() ? "" : ", ") + declaration(*result);
  const std::string call = call_text(node, [](const Value& value) { return describe(value); });
  return {fmt::format("  {}{}{}", results, results.empty() ? "" : " = ", call), source_text(node.source)};
}

std::string attributes_text(const Constant& constant) {
  std::vector<std::string> attributes;
  if (constant.variable) attributes.emplace_back("variable=True");
  if (constant.tensor.requires_grad()) attributes.emplace_back("requires_grad=True");
  if (constant.tensor.unsafeGetTensorImpl()->is_wrapped_number()) attributes.emplace_back("wrapped_number=True");
  return attributes.empty() ? "" : fmt::format("({})", fmt::join(attributes, ", "));
}

Line constant_line(const Constant& constant) {
  const at::Tensor& tensor = constant.tensor;
  return {fmt::format("  {}: {}{} = constant{} {}", describe(*constant.value), string_literal(layout_text(tensor)),
                      constant.value->is_flags ? " flags" : "", attributes_text(constant),
                      is_printable(tensor) ? values_text(tensor) : "..."),
          ""};
}

std::string header(const Graph& graph) {
  std::vector<std::string> inputs;
  for (const auto& input : graph.inputs())
    inputs.push_back(declaration(*input.value) + (input.kind == InputKind::param ? " param" : ""));
  std::string name = is_identifier(graph.name()) ? graph.name() : string_literal(graph.name());
  std::string one_line = fmt::format("graph {}({}):\n", name, fmt::join(inputs, ", "));
  if (one_line.size() <= 100) return one_line;
  return fmt::format("graph {}(\n    {}):\n", name, fmt::join(inputs, ",\n    "));
}

Line outputs_line(const Graph& graph) {
  std::string text = "  return";
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    text += i ? ", " : " ";
    if (!graph.output_names().empty()) {
      const std::string& name = graph.output_names()[i];
      text += (is_identifier(name) ? name : string_literal(name)) + "=";
    }
    text += describe(*graph.outputs()[i]);
  }
  return {text, ""};
}

}  // namespace

std::string call_text(const Node& node, const Namer& name) {
  return fmt::format("{}({})", op_name(node.op), arguments_text(node, name));
}

std::string print(const Graph& graph) {
  std::vector<Line> lines;
  for (const auto& constant : graph.constants()) lines.push_back(constant_line(constant));
  for (const auto& node : graph.nodes()) lines.push_back(node_line(*node));
  lines.push_back(outputs_line(graph));

  size_t column = 0;
  for (const auto& line : lines)
    if (!line.comment.empty() && line.text.size() <= kCommentColumn) column = std::max(column, line.text.size());
  std::string text = header(graph);
  for (const auto& line : lines) {
    text += line.text;
    if (!line.comment.empty())
      text += std::string(column > line.text.size() ? column - line.text.size() : 0, ' ') + "  " + line.comment;
    text += '\n';
  }
  return text;
}

}  // namespace triage::graph
