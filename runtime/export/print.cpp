#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unordered_map>
#include <unordered_set>

#include "runtime/export/names.h"
#include "runtime/export/state.h"
#include "runtime/graph/evaluation/number_ops.h"
#include "runtime/graph/passes/uses.h"
#include "runtime/graph/text/describe.h"
#include "runtime/messages/printable.h"

namespace triage::exporting {
namespace {

std::string identifier(const std::string& text) {
  std::string name;
  for (const char c : text) name += graph::is_identifier(std::string("_") + c) ? c : '_';
  return graph::is_identifier(name) ? name : "_" + name;
}

class Namer {
 public:
  void add(const graph::Value* value, const std::string& base) {
    std::string name = base;
    for (size_t& next = next_[base]; !taken_.insert(name).second;) name = fmt::format("{}_{}", base, ++next);
    names_[value] = name;
  }

  void add_results(const graph::Node& node) {
    const std::string& full = node.op.operator_name().name;
    const std::string base = graph::item_of(node)     ? "item"
                             : graph::size_read(node) ? "size"
                                                      : identifier(full.substr(full.rfind(':') + 1));
    const auto& declared = node.op.schema().returns();
    for (size_t i = 0; i < node.results.size(); ++i) {
      const bool named = declared.size() == node.results.size() && !declared[i].name().empty();
      add(node.results[i], node.results.size() == 1 ? base
                           : named                  ? fmt::format("{}_{}", base, declared[i].name())
                                                    : fmt::format("{}_{}", base, i));
    }
  }

  Names take() { return std::move(names_); }

 private:
  std::unordered_set<std::string> taken_{"self"};
  std::unordered_map<std::string, size_t> next_;  // up to which number the names of a base are taken
  Names names_;
};

}  // namespace

Names names_of(const graph::Graph& graph) {
  Namer namer;
  for (const auto& input : graph.inputs()) namer.add(input.value, identifier(input.value->name));
  for (const auto& constant : graph.constants()) namer.add(constant.value, identifier(constant.value->name));
  for (const auto& node : graph.nodes()) namer.add_results(*node);
  return namer.take();
}

namespace {

using graph::Node;
using graph::Value;

class Printer {
 public:
  explicit Printer(const ExportedProgram::State& program) : program_(program), shapes_(program.shapes()) {
    find_last_uses();
  }

  std::string run() {
    std::string text = "ExportedProgram:\n" + header();
    for (const std::string& note : program_.notes) text += "        # " + messages::one_line(note) + "\n";
    for (const auto& node : program_.graph.nodes()) text += "        " + line(*node) + "\n";
    text += "        return (" + outputs() + ")\n\n" + signature() + ranges();
    return text;
  }

 private:
  const std::string& name(const Value& value) const { return program_.names.at(&value); }

  std::string type(const Value& value) const {
    if (const symbols::SymbolicExpression* number = shapes_.table.find(&value)) return "Sym(" + number->text + ")";
    if (!value.meta) return "?";
    const auto found = shapes_.dims.find(&value);
    std::string text = graph::short_dtype(value.meta->dtype) + "[";
    text += found == shapes_.dims.end() ? "?" : fmt::format("{}", fmt::join(found->second, ", "));
    text += "]";
    return value.meta->device.is_cpu() ? text : text + value.meta->device.str();
  }

  std::string declared(const Value& value) const { return fmt::format("{}: \"{}\"", name(value), type(value)); }

  void find_last_uses() {
    used_ = {program_.graph.outputs().begin(), program_.graph.outputs().end()};
    const auto& nodes = program_.graph.nodes();
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      graph::for_each_use(**node, [&](Value* value) {
        if (used_.insert(value).second) last_uses_[node->get()].push_back(value);
      });
    }
  }

  std::string header() const {
    std::vector<std::string> inputs;
    for (const auto& constant : program_.graph.constants()) inputs.push_back(declared(*constant.value));
    for (const auto& input : program_.graph.inputs()) inputs.push_back(declared(*input.value));
    const std::string& own = program_.graph.name();
    return fmt::format("    graph {}({}):\n", graph::is_identifier(own) ? own : graph::string_literal(own),
                       fmt::join(inputs, ", "));
  }

  /// One node, and which values nobody needs behind it.
  std::string line(const Node& node) const {
    std::string text;
    for (const Value* result : node.results) text += (text.empty() ? "" : ", ") + declared(*result);
    if (!text.empty()) text += " = ";
    text += graph::call_text(node, [this](const Value& value) { return name(value); });
    std::string freed;
    if (auto found = last_uses_.find(&node); found != last_uses_.end())
      for (const Value* value : found->second) freed += name(*value) + " = ";
    for (const Value* result : node.results)
      if (!is_used(result)) freed += name(*result) + " = ";
    return freed.empty() ? text : text + ";  " + freed + "None";
  }

  bool is_used(const Value* value) const { return used_.count(value) != 0; }

  std::string outputs() const {
    std::string text;
    for (const Value* output : program_.graph.outputs()) text += name(*output) + ", ";
    const size_t count = program_.graph.outputs().size();
    return count == 1 ? text.substr(0, text.size() - 1) : text.substr(0, text.size() - (count ? 2 : 0));
  }

  std::string signature() const {
    std::vector<std::string> inputs, outputs;
    for (const auto& constant : program_.graph.constants())
      inputs.push_back(fmt::format("{} ({})", name(*constant.value),
                                   !constant.variable                ? "CONSTANT_TENSOR"
                                   : constant.tensor.requires_grad() ? "PARAMETER"
                                                                     : "BUFFER"));
    size_t param = 0;
    for (const auto& input : program_.graph.inputs()) {
      const bool is_param = input.kind == graph::InputKind::param;
      inputs.push_back(name(*input.value) + (is_param ? param_text(program_.params.at(param++)) : " (USER_INPUT)"));
    }
    const auto& output_names = program_.graph.output_names();
    for (size_t i = 0; i < program_.graph.outputs().size(); ++i) {
      const std::string& value = name(*program_.graph.outputs()[i]);
      const bool renamed = !output_names.empty() && output_names[i] != value;
      outputs.push_back((renamed ? output_names[i] + " = " : "") + value + " (USER_OUTPUT)");
    }
    return fmt::format("Graph signature:\n    inputs:  {}\n    outputs: {}\n", fmt::join(inputs, ", "),
                       fmt::join(outputs, ", ")) +
           sameness();
  }

  /// Empty where it does not matter.
  std::string sameness() const {
    const std::vector<size_t>& same = program_.options.same_inputs;
    if (same.empty()) return "";
    std::string one;
    for (size_t i = 0; i < same.size(); ++i)
      if (same[i] != i)
        one += fmt::format("{}{} is {}", one.empty() ? "" : ", ", name(*program_.graph.inputs()[i].value),
                           name(*program_.graph.inputs()[same[i]].value));
    return fmt::format("    holds where {}\n", one.empty() ? "all inputs are different tensors" : one);
  }

  static std::string param_text(const c10::IValue& value) {
    return fmt::format(" (PARAM, default {})", graph::literal(value, {}));
  }

  std::string ranges() const {
    std::vector<std::string> all;
    for (const symbols::Symbol& symbol : shapes_.table.symbols())
      if (!symbol.hidden) all.push_back(symbol.name + ": " + symbols::text(symbol.range, symbol.whole));
    return fmt::format("Range constraints: {{{}}}\n", fmt::join(all, ", "));
  }

  const ExportedProgram::State& program_;
  const Shapes& shapes_;
  std::unordered_map<const Node*, std::vector<const Value*>> last_uses_;
  std::unordered_set<const Value*> used_;
};

}  // namespace

std::string print(const ExportedProgram::State& program) { return messages::printable(Printer(program).run()); }

}  // namespace triage::exporting
