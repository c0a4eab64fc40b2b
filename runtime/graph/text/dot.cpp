#include "runtime/graph/text/dot.h"

#include <fmt/format.h>

#include <map>
#include <string_view>

#include "runtime/graph/passes/uses.h"
#include "runtime/graph/text/describe.h"
#include "runtime/messages/printable.h"

namespace triage::graph {
namespace {

/// Graphviz reads escapes in labels: a backslash is one of them.
std::string label(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : messages::printable(text)) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (c == '\n')
      quoted += "\\n";
    else
      quoted += c;
  }
  return quoted + '"';
}

std::string text_of_type(const Value& value) { return value.meta ? type_text(*value.meta) : ""; }

class Diagram {
 public:
  explicit Diagram(const Graph& graph) {
    text_ = fmt::format(
        "digraph {} {{\n  node [fontname=\"Helvetica\", fontsize=11, shape=box, style=rounded]\n"
        "  edge [fontname=\"Helvetica\", fontsize=9, color=\"#888888\"]\n",
        label(graph.name()));
    for (const Input& input : graph.inputs())
      add_value(input.value, input.kind == InputKind::param ? "param" : "input",
                "style=\"rounded,filled\", fillcolor=\"#e8eefc\"");
    for (const Constant& constant : graph.constants())
      add_value(constant.value, constant.variable ? "variable" : "constant",
                "style=\"rounded,filled\", fillcolor=\"#f3f3f0\"");
    for (const auto& node : graph.nodes()) add_node(*node);
    for (size_t i = 0; i < graph.outputs().size(); ++i) add_output(graph, i);
  }
  std::string text() const { return text_ + "}\n"; }

 private:
  std::string add(const std::string& words, const char* attributes) {
    const std::string name = fmt::format("n{}", count_++);
    text_ += fmt::format("  {} [label={}{}{}]\n", name, label(words), *attributes ? ", " : "", attributes);
    return name;
  }

  void add_value(const Value* value, const char* kind, const char* attributes) {
    made_by_[value] = add(fmt::format("{} {}", kind, describe(*value)), attributes);
  }

  void add_node(const Node& node) {
    const std::string place =
        node.source.file.empty() ? "" : fmt::format("\n{}:{}", node.source.file, node.source.line);
    const std::string name = add(op_name(node.op) + place, "");
    for_each_use(node, [&](const Value* value) { connect(value, name); });
    for (const Value* result : node.results) made_by_[result] = name;
  }

  void add_output(const Graph& graph, size_t index) {
    const auto& names = graph.output_names();
    connect(graph.outputs()[index], add("output " + (index < names.size() ? names[index] : std::to_string(index)),
                                        "style=\"rounded,filled\", fillcolor=\"#e6f3ea\""));
  }

  void connect(const Value* value, const std::string& to) {
    text_ += fmt::format("  {} -> {} [label={}]\n", made_by_[value], to,
                         label(" " + describe(*value) + " " + text_of_type(*value)));
  }

  std::string text_;
  size_t count_ = 0;
  std::map<const Value*, std::string> made_by_;  // names in the diagram
};

}  // namespace

std::string dot_text(const Graph& graph) { return Diagram(graph).text(); }

}  // namespace triage::graph
