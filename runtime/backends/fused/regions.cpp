#include "runtime/backends/fused/regions.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "runtime/graph/copy.h"
#include "runtime/graph/passes/uses.h"
#include "runtime/graph/text/describe.h"

namespace triage::fused {
namespace {

using graph::Graph;
using graph::Node;
using graph::Value;

using Translation = std::unordered_map<const Value*, const Value*>;

/// "block#1" of "block#1/layer#2".
std::string_view outermost_call(std::string_view region) { return region.substr(0, region.find('/')); }

std::string calls_inside(const std::string& region) {
  const size_t slash = region.find('/');
  return slash == std::string::npos ? "" : region.substr(slash + 1);
}

/// Neighbouring nodes of one call, or of none.
struct Slice {
  size_t begin, end;
};

std::vector<Slice> slices_of(const Graph& graph) {
  std::vector<Slice> slices;
  const auto& nodes = graph.nodes();
  for (size_t i = 0; i < nodes.size(); ++i) {
    const bool goes_on =
        i > 0 && outermost_call(nodes[i]->source.region) == outermost_call(nodes[i - 1]->source.region);
    if (!goes_on) slices.push_back({i, i});
    slices.back().end = i + 1;
  }
  return slices;
}

/// What `node` of a slice is called inside of the call that the slice is.
Source source_inside(const Node& node) {
  Source source = node.source;
  source.region = calls_inside(source.region);
  return source;
}

/// A graph and what is to be known of its values to take slices out of it.
class SlicedGraph {
 public:
  explicit SlicedGraph(const Graph& graph) : graph_(graph) {
    for (const auto& input : graph.inputs())
      if (input.kind == graph::InputKind::param) params_.insert(input.value);
    for (size_t i = 0; i < graph.nodes().size(); ++i)
      graph::for_each_use(*graph.nodes()[i], [&](const Value* value) { last_use_[value] = i; });
    for (const Value* output : graph.outputs()) last_use_[output] = graph.nodes().size();
  }
  const Graph& graph() const { return graph_; }
  const Node& node(size_t index) const { return *graph_.nodes()[index]; }
  bool is_param(const Value* value) const { return params_.count(value) != 0; }
  bool is_read_after(const Value* value, const Slice& slice) const {
    const auto found = last_use_.find(value);
    return found != last_use_.end() && found->second >= slice.end;
  }

 private:
  const Graph& graph_;
  std::unordered_set<const Value*> params_;
  std::unordered_map<const Value*, size_t> last_use_;
};

/// A slice with its values numbered in the order in which its nodes name them. Slices of one `text` compute alike.
class NumberedSlice {
 public:
  NumberedSlice(const SlicedGraph& whole, const Slice& slice, const std::unordered_set<const Node*>& calls)
      : whole_(whole), slice_(slice) {
    for (size_t i = slice.begin; i < slice.end; ++i) add(whole.node(i), calls.count(&whole.node(i)) != 0);
  }
  const std::string& text() const { return text_; }
  const std::vector<const Value*>& values() const { return values_; }

  /// The slice as a graph, whose inputs are what it reads from outside, and its outputs what is read after it.
  Graph as_graph(Translation& originals) const {
    Graph made(whole_.graph().name());
    made.set_recorded_types();
    graph::Copies copies;
    for (const Value* value : read_) {
      const auto kind = whole_.is_param(value) ? graph::InputKind::param : graph::InputKind::tensor;
      Value* copy = made.add_input(fmt::format("in{}", copies.size()), kind, value->meta);
      made.edit(copy).is_flags = value->is_flags;
      copies[value] = copy;
    }
    for (size_t i = slice_.begin; i < slice_.end; ++i)
      graph::copy_node(made, whole_.node(i), copies)->source = source_inside(whole_.node(i));
    std::vector<Value*> outputs;
    for (const Value* value : values_)
      if (is_made_here(value) && whole_.is_read_after(value, slice_)) outputs.push_back(copies.at(value));
    made.set_outputs(std::move(outputs));
    for (const auto& [original, copy] : copies) originals[copy] = original;
    return made;
  }

 private:
  bool is_made_here(const Value* value) const { return made_.count(value) != 0; }

  void add(const Node& node, bool is_call) {
    std::string declared;
    const auto name = [&](const Value& value) {
      const auto [found, fresh] = numbers_.emplace(&value, values_.size());
      if (fresh) {
        values_.push_back(&value);
        read_.push_back(&value);
        declared += fmt::format("%{}: {}{}\n", found->second, type_of(value), whole_.is_param(&value) ? " param" : "");
      }
      return fmt::format("%{}", found->second);
    };
    const std::string call = graph::call_text(node, name);
    std::string results;
    for (const Value* result : node.results) {
      numbers_.emplace(result, values_.size());
      values_.push_back(result);
      made_.insert(result);
      results += type_of(*result) + (whole_.is_read_after(result, slice_) ? " read, " : ", ");
    }
    const Source source = source_inside(node);
    text_ += fmt::format("{}{} = {}{}{} {}:{} {}\n", declared, results, call, node.checks ? " checks" : "",
                         is_call ? " call" : "", source.file, source.line, source.region);
  }

  std::string type_of(const Value& value) const {
    std::string type = value.meta ? graph::type_text(*value.meta) : "?";
    const at::Tensor* constant = whole_.graph().constant_of(&value);
    const bool number = constant && constant->unsafeGetTensorImpl()->is_wrapped_number();
    return type + (value.is_flags ? " flags" : "") + (number ? " number" : "");
  }

  const SlicedGraph& whole_;
  const Slice slice_;
  std::string text_;
  std::vector<const Value*> values_, read_;
  std::unordered_map<const Value*, size_t> numbers_;
  std::unordered_set<const Value*> made_;
};

/// The groups of a slice among all groups, for other slices that compute alike.
struct SliceGroups {
  size_t first, count, begin;  // groups; and where the slice begins
  std::vector<const Value*> values;
};

class RegionCutter {
 public:
  RegionCutter(const Graph& graph, c10::Device device, const std::unordered_set<const Node*>& calls)
      : whole_(graph), device_(device), calls_(calls) {}

  std::vector<FusionGroup> run() {
    for (const Slice& slice : slices_of(whole_.graph())) {
      const NumberedSlice numbered(whole_, slice, calls_);
      const auto known = cuts_.find(numbered.text());
      if (known == cuts_.end())
        cut_slice(slice, numbered);
      else
        repeat(known->second, slice, numbered);
    }
    return std::move(groups_);
  }

 private:
  void cut_slice(const Slice& slice, const NumberedSlice& numbered) {
    Translation originals;
    const Graph graph = numbered.as_graph(originals);
    std::unordered_map<const Node*, const Node*> nodes;
    std::unordered_set<const Node*> calls;
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      const Node* const node = graph.nodes()[i].get();
      nodes[node] = &whole_.node(slice.begin + i);
      if (calls_.count(nodes[node])) calls.insert(node);
    }
    const size_t first = groups_.size();
    for (FusionGroup& group : cut(graph, device_, std::move(calls))) {
      for (const Value*& value : group.inputs) value = originals.at(value);
      for (const Value*& value : group.outputs) value = originals.at(value);
      for (const Node*& node : group.nodes) node = nodes.at(node);
      if (group.same_as) *group.same_as += first;
      groups_.push_back(std::move(group));
    }
    cuts_.emplace(numbered.text(), SliceGroups{first, groups_.size() - first, slice.begin, numbered.values()});
  }

  void repeat(const SliceGroups& cut, const Slice& slice, const NumberedSlice& numbered) {
    Translation here;
    for (size_t i = 0; i < cut.values.size(); ++i) here[cut.values[i]] = numbered.values()[i];
    std::unordered_map<const Node*, const Node*> nodes;
    for (size_t i = 0; slice.begin + i < slice.end; ++i)
      nodes[&whole_.node(cut.begin + i)] = &whole_.node(slice.begin + i);
    for (size_t at = cut.first; at < cut.first + cut.count; ++at) {
      const FusionGroup& first = groups_[at];
      FusionGroup group;
      group.same_as = first.same_as.value_or(at);
      for (const Value* value : first.inputs) group.inputs.push_back(here.at(value));
      for (const Value* value : first.outputs) group.outputs.push_back(here.at(value));
      for (const Node* node : first.nodes) group.nodes.push_back(nodes.at(node));
      group.fused = first.fused, group.pooled = first.pooled, group.in_place = first.in_place;
      groups_.push_back(std::move(group));
    }
  }

  const SlicedGraph whole_;
  const c10::Device device_;
  const std::unordered_set<const Node*>& calls_;
  std::vector<FusionGroup> groups_;
  std::unordered_map<std::string, SliceGroups> cuts_;
};

}  // namespace

bool has_regions(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(),
                     [](const auto& node) { return !node->source.region.empty(); });
}

std::vector<FusionGroup> cut_by_regions(const Graph& graph, c10::Device device,
                                        const std::unordered_set<const Node*>& calls) {
  return RegionCutter(graph, device, calls).run();
}

size_t largest_cut(const Graph& graph) {
  size_t most = 0, length = 0;
  const std::string* before = nullptr;
  for (const auto& node : graph.nodes()) {
    length = before && *before == node->source.region ? length + 1 : 1;
    before = &node->source.region;
    most = std::max(most, length);
  }
  return most;
}

}  // namespace triage::fused
