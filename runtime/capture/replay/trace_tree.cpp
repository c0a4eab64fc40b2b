#include "runtime/capture/replay/trace_tree.h"

#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <triage/config.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "runtime/backends/call_inputs.h"
#include "runtime/backends/shipped.h"
#include "runtime/capture/reports/logs.h"
#include "runtime/capture/reports/trace_events.h"
#include "runtime/compat/autocast.h"
#include "runtime/graph/passes/clean.h"
#include "runtime/messages/debugging/debug_folder.h"

namespace triage::capture {

ResultLayout ResultLayout::of(const at::Tensor& tensor) {
  ResultLayout layout;
  layout.defined = tensor.defined();
  if (!layout.defined) return layout;
  layout.inference = tensor.is_inference();
  layout.requires_grad = tensor.requires_grad();
  layout.keys = tensor.key_set();
  layout.dtype = tensor.dtype();
  layout.device = tensor.device();
  layout.sizes = tensor.sizes().vec();
  layout.strides = tensor.strides().vec();
  layout.storage_offset = tensor.storage_offset();
  layout.storage_bytes = tensor.storage().nbytes();
  return layout;
}

const std::vector<ResultLayout>* TraceStep::layouts(uint64_t signature) const {
  for (const auto& [id, layouts] : results)
    if (id == signature) return &layouts;
  return nullptr;
}

const std::vector<ResultLayout>& TraceStep::add_layouts(uint64_t signature, std::vector<ResultLayout> layouts) {
  if (results.size() >= TraceTree::max_layouts)
    results.erase(results.begin() + 1, results.begin() + 1 + TraceTree::max_layouts / 2);
  return results.emplace_back(signature, std::move(layouts)).second;
}

ThreadState ThreadState::now() {
  auto keys = c10::impl::tls_local_dispatch_key_set();
  return {keys.included_.raw_repr(), keys.excluded_.raw_repr(),   compat::autocast_state(),        &get_config(),
          c10::get_default_dtype(),  c10::GradMode::is_enabled(), c10::InferenceMode::is_enabled()};
}

bool ThreadState::operator==(const ThreadState& other) const {
  return included_keys == other.included_keys && excluded_keys == other.excluded_keys && autocast == other.autocast &&
         config == other.config && default_dtype == other.default_dtype && grad_mode == other.grad_mode;
}

TraceNode* TraceTree::root(const ThreadState& state) {
  for (auto& [known, node] : roots_)
    if (known == state) return node.get();
  if (roots_.size() >= max_roots) return nullptr;
  return roots_.emplace_back(state, std::make_unique<TraceNode>()).second.get();
}

namespace {

void forget(TraceNode& node) {
  if (node.segment) node.segment->ready = false;
  for (const auto& step : node.next) forget(step->after);
}

void finish(const TraceNode& node) {
  if (node.segment && node.segment->compiled.executable) node.segment->compiled.executable->finish_compiling();
  for (const auto& step : node.next) finish(step->after);
}

}  // namespace

void TraceTree::forget_compiled() {
  for (auto& [state, node] : roots_) forget(*node);
}

void TraceTree::finish_compiling() const {
  for (const auto& [state, node] : roots_) finish(*node);
}

bool same_break(const GraphBreak& a, const GraphBreak& b) {
  return a.kind == b.kind && a.where.line == b.where.line && a.where.file == b.where.file && a.what == b.what &&
         a.hint == b.hint;
}

namespace {

class SegmentGraph {
 public:
  SegmentGraph(const TraceTree& tree, const std::vector<at::Tensor>& inputs)
      : graph_(tree.name + "_segment_" + std::to_string(tree.segments.size() + 1)), examples_(inputs) {}

  void append(const TraceStep& step) {
    for (const bool param : step.new_params) {
      const at::Tensor& example = examples_[inputs_.size()];
      inputs_.push_back(graph_.add_input(
          "in" + std::to_string(inputs_.size()), param ? graph::InputKind::param : graph::InputKind::tensor,
          graph::TensorMeta{example.scalar_type(), example.sizes().vec(), example.device()}));
    }
    std::vector<graph::Operand> operands;
    for (const TraceArgument& argument : step.arguments) operands.push_back(operand(argument));
    const graph::Node* node = graph_.append(step.op, std::move(operands), step.num_results, step.source);
    const std::vector<ResultLayout>& layouts = step.results.front().second;
    for (uint32_t i = 0; i < step.num_results; ++i) {
      graph::MutableValue& result = graph_.edit(node->results[i]);
      result.is_flags = graph::returns_flags(step.op, i);
      if (layouts[i].requires_grad) differentiable_.insert(&result);
      if (layouts[i].defined)
        result.meta =
            graph::TensorMeta{c10::typeMetaToScalarType(layouts[i].dtype), layouts[i].sizes, layouts[i].device};
      values_.push_back(node->results[i]);
    }
  }

  bool has_gradients() const { return !differentiable_.empty(); }

  graph::Graph finish(const std::vector<uint32_t>& outputs, bool folds) {
    std::vector<graph::Value*> values;
    for (const uint32_t output : outputs) values.push_back(values_[output]);
    graph_.set_outputs(std::move(values));
    graph::clean(graph_, differentiable_, folds);
    return std::move(graph_);
  }

 private:
  graph::Operand operand(const TraceArgument& argument) const {
    switch (argument.from) {
      case TraceArgument::From::value:
        return values_[argument.index];
      case TraceArgument::From::input:
        return inputs_[argument.index];
      case TraceArgument::From::list: {
        std::vector<graph::Operand> items;
        for (const TraceArgument& item : argument.items) items.push_back(operand(item));
        return items;
      }
      default:
        return argument.constant;
    }
  }

  graph::Graph graph_;
  const std::vector<at::Tensor>& examples_;
  std::vector<graph::Value*> inputs_, values_;
  std::unordered_set<const graph::Value*> differentiable_;
};

void want(std::vector<bool>& wanted, const TraceArgument& argument) {
  if (argument.from == TraceArgument::From::value) wanted[argument.index] = true;
  for (const TraceArgument& item : argument.items) want(wanted, item);
}

}  // namespace

void compile_segment(TraceTree& tree, TraceSegment& segment, const std::vector<TraceStep*>& path,
                     const std::vector<at::Tensor>& inputs, std::vector<bool> samples) {
  SegmentGraph builder(tree, inputs);
  for (const TraceStep* step : path) builder.append(*step);
  // An alias is made again from what it looks at, so that a later write shows where it should. That has to be there
  // then.
  std::vector<bool> needed = segment.wanted;
  segment.outputs.clear();
  segment.aliases.clear();
  for (auto step = path.rbegin(); step != path.rend(); ++step) {
    for (uint32_t i = (*step)->num_results; i-- > 0;) {
      const uint32_t value = (*step)->first_value + i;
      if (!needed[value]) continue;
      if (!(*step)->aliases) {
        segment.outputs.push_back(value);
        continue;
      }
      segment.aliases.push_back({*step, i});
      for (const TraceArgument& argument : (*step)->arguments) want(needed, argument);
    }
  }
  // Autograd sums gradients in the order in which it met the operators, and `eager` promises the script's bits.
  segment.by_steps = builder.has_gradients() && (tree.backend_name == "eager" || segment.input_written);
  std::reverse(segment.outputs.begin(), segment.outputs.end());
  std::reverse(segment.aliases.begin(), segment.aliases.end());
  graph::Graph graph = builder.finish(segment.outputs, folds_constants(tree.backend_name));
  graph.set_recorded_types();
  const CompiledSegment before = std::exchange(segment.compiled, {});
  segment.compiled.graph = std::make_shared<const graph::Graph>(std::move(graph));
  const messages::DebugScope debug_scope(segment.compiled.graph->name());
  trace_segment(tree.name, tree.backend_name);
  log_graph(*segment.compiled.graph, inputs, tree.backend_name);
  const CallInputs of_segment(std::move(samples));
  if (!segment.outputs.empty() && !segment.by_steps)
    segment.compiled.executable = tree.backend(*segment.compiled.graph, inputs);
  segment.ready = true;
  const auto old = std::find(tree.segments.begin(), tree.segments.end(), before);
  if (before.graph && old != tree.segments.end())
    *old = segment.compiled;
  else
    tree.segments.push_back(segment.compiled);
  tree.spared_calls = 0;
  for (const CompiledSegment& one : tree.segments)
    if (one.executable) tree.spared_calls += one.executable->spared_calls();
}

}  // namespace triage::capture
