#include "runtime/export/names.h"

#include <fmt/format.h>

#include <unordered_set>

#include "runtime/graph/describe.h"
#include "runtime/graph/number_ops.h"

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

}  // namespace triage::exporting
