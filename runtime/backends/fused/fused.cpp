#include "runtime/backends/fused/fused.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "runtime/backends/aot/aot_eager.h"
#include "runtime/backends/deadline.h"
#include "runtime/backends/eager.h"
#include "runtime/backends/fused/gpu/accelerator.h"
#include "runtime/backends/fused/loops/groups_text.h"
#include "runtime/backends/fused/parts/part_sequence.h"
#include "runtime/backends/fused/regions.h"
#include "runtime/backends/repro.h"
#include "runtime/backends/unmasked_rows.h"
#include "runtime/given/host_call.h"
#include "runtime/graph/evaluation/evaluate.h"
#include "runtime/graph/evaluation/number_ops.h"
#include "runtime/graph/passes/aliases.h"
#include "runtime/graph/passes/uses.h"
#include "runtime/graph/text/describe.h"
#include "runtime/messages/assert.h"
#include "runtime/messages/debugging/debug_folder.h"
#include "runtime/messages/logs/artefacts.h"
#include "runtime/messages/printable.h"
#include "runtime/operators/untrusted.h"
#include "runtime/random/sequence.h"

namespace triage {
namespace {

using graph::Graph;
using graph::Value;

/// Sizes that were equal when parts were cut, by chance or not: two of inputs, or one of an input and one of a
/// constant. What is data of the batch, and what belongs to a row, is told by them.
class EqualSizes {
 public:
  explicit EqualSizes(const Graph& graph) {
    for (size_t input = 0; input < graph.inputs().size(); ++input) {
      const auto& meta = graph.inputs()[input].value->meta;
      for (size_t dim = 0; meta && dim < meta->sizes.size(); ++dim) {
        const InputAxis place{input, static_cast<int64_t>(dim)};
        const auto [first, fresh] = first_.emplace(meta->sizes[dim], place);
        if (!fresh) pairs_.emplace_back(first->second, place);
        places_.emplace_back(place, meta->sizes[dim]);
      }
    }
    for (const auto& constant : graph.constants())
      for (const int64_t size : constant.tensor.sizes())
        if (const auto found = first_.find(size); found != first_.end()) fixed_.insert(*found);
  }
  bool hold(at::ArrayRef<at::Tensor> inputs) const {
    const auto size = [&](const InputAxis& at) {
      if (at.input >= inputs.size()) return int64_t{-1};  // the parts say so
      const at::Tensor& input = inputs[at.input];
      return input.defined() && at.dim < input.dim() ? input.size(at.dim) : -1;
    };
    for (const auto& [a, b] : pairs_)
      if (size(a) != size(b)) return false;
    for (const auto& [fixed, place] : fixed_)
      if (size(place) != fixed) return false;
    return std::all_of(places_.begin(), places_.end(),
                       [&](const auto& place) { return place.second != 1 || size(place.first) == 1; });
  }
  size_t count() const { return pairs_.size() + fixed_.size(); }

 private:
  struct InputAxis {
    size_t input;
    int64_t dim;
  };
  std::map<int64_t, InputAxis> first_, fixed_;
  std::vector<std::pair<InputAxis, InputAxis>> pairs_;
  std::vector<std::pair<InputAxis, int64_t>> places_;
};

bool has_sizes_of(const Value& result, const Value& argument) {
  return result.meta && argument.meta && result.meta->sizes == argument.meta->sizes;
}

/// The argument whose sizes all results of a random operator have, as dropout's; null where they are others'.
const Value* pattern_of(const graph::Node& node) {
  for (const auto& operand : node.operands) {
    const Value* value = operand.value();
    if (!value) continue;
    const bool all = std::all_of(node.results.begin(), node.results.end(),
                                 [&](const Value* result) { return has_sizes_of(*result, *value); });
    return all ? value : nullptr;
  }
  return nullptr;
}

/// Values of a graph that runs once, each until nobody reads it any more.
class Values {
 public:
  explicit Values(const Graph& graph) {
    for (const auto& node : graph.nodes()) graph::for_each_use(*node, [&](const Value* value) { ++uses_[value]; });
    for (const auto& constant : graph.constants()) tensors_[constant.value] = constant.tensor;
  }
  void set(const Value* value, const at::Tensor& tensor) {
    if (uses_.count(value)) tensors_[value] = tensor;
  }
  const at::Tensor& at(const Value* value) const { return tensors_.at(value); }
  void drop_last_used_by(const graph::Node& node) {
    graph::for_each_use(node, [&](const Value* value) {
      if (--uses_[value] == 0) tensors_.erase(value);
    });
  }

 private:
  std::unordered_map<const Value*, size_t> uses_;
  std::unordered_map<const Value*, at::Tensor> tensors_;
};

/// What stands for the results of a random operator where only sizes are asked for: nothing is drawn.
std::vector<at::Tensor> not_drawn(const graph::Node& node, const at::Tensor& pattern) {
  std::vector<at::Tensor> results;
  for (const Value* result : node.results)
    results.push_back(at::ones(pattern.sizes(), pattern.options().dtype(result->meta->dtype)));
  return results;
}

bool can_run_again(const Graph& graph) {
  return std::all_of(graph.nodes().begin(), graph.nodes().end(), [](const auto& node) {
    return !graph::is_effect(node->op) && (!graph::is_random(node->op) || pattern_of(*node));
  });
}

bool computes_only(const Graph& graph) {
  return std::all_of(graph.nodes().begin(), graph.nodes().end(),
                     [](const auto& node) { return graph::computes_only(node->op); });
}

/// The same graph with the sizes that its values have for these inputs: it runs once, without the random numbers, which
/// belong to the calls. Null where that cannot be.
std::unique_ptr<Graph> with_sizes_of(const Graph& graph, at::ArrayRef<at::Tensor> inputs) {
  const at::NoGradGuard no_grad;
  auto made = std::make_unique<Graph>(graph.clone());
  std::unordered_map<const graph::Node*, const Value*> patterns;  // by the sizes at capture, which are about to change
  for (const auto& node : made->nodes())
    if (graph::is_random(node->op)) patterns[node.get()] = pattern_of(*node);
  Values values(*made);
  for (size_t i = 0; i < inputs.size(); ++i) {
    Value* value = made->inputs()[i].value;
    values.set(value, inputs[i]);
    if (auto& meta = made->edit(value).meta) meta->sizes = inputs[i].sizes().vec();
  }
  const operators::Untrusted::Terms* const terms = operators::Untrusted::current();
  operators::Untrusted::Terms all_calls = terms ? *terms : operators::Untrusted::Terms();
  all_calls.captured = false;  // loops were not asked about each operator
  const operators::Untrusted held(terms ? &all_calls : nullptr);
  try {
    for (const auto& node : made->nodes()) {
      const auto pattern = patterns.find(node.get());
      const auto results = pattern != patterns.end()
                               ? not_drawn(*node, values.at(pattern->second))
                               : graph::evaluate(*node, [&](const Value* value) { return values.at(value); });
      if (results.size() != node->results.size()) return nullptr;
      for (size_t i = 0; i < results.size(); ++i) {
        values.set(node->results[i], results[i]);
        if (auto& meta = made->edit(node->results[i]).meta) meta->sizes = results[i].sizes().vec();
      }
      values.drop_last_used_by(*node);
    }
  } catch (const std::exception&) {
    return nullptr;  // the call itself has said what is wrong, or nothing is
  }
  return made;
}

/// Inputs as the graph declares them; nothing where it does not, or they are too large to be made up.
std::optional<std::vector<at::Tensor>> synthetic_inputs(const Graph& graph) {
  constexpr int64_t most_elements = int64_t{1} << 26;
  int64_t elements = 0;
  std::vector<at::Tensor> inputs;
  for (const auto& input : graph.inputs()) {
    const auto& meta = input.value->meta;
    if (!meta || (elements += c10::multiply_integers(meta->sizes)) > most_elements) return std::nullopt;
    inputs.push_back(at::zeros(meta->sizes, at::TensorOptions(meta->dtype).device(meta->device)));
  }
  return inputs;
}

/// The same graph with the types that its values have in a run on `examples`, or on synthetic inputs where there are
/// none: loops read and write memory by these types. Nothing where it cannot run.
std::optional<Graph> with_types_of_run(const Graph& graph, const std::vector<at::Tensor>& examples) {
  const at::NoGradGuard no_grad;
  const random::Replay unseen(true);
  Graph made = graph.clone();
  Values values(made);
  const auto see = [&](Value* value, const at::Tensor& tensor) {
    values.set(value, tensor);
    std::optional<graph::TensorMeta>& meta = made.edit(value).meta;
    meta.reset();
    if (tensor.defined()) meta = graph::TensorMeta{tensor.scalar_type(), tensor.sizes().vec(), tensor.device()};
  };
  try {
    const auto inputs = examples.empty() ? synthetic_inputs(graph) : std::optional(examples);
    if (!inputs || inputs->size() != made.inputs().size()) return std::nullopt;
    for (size_t i = 0; i < inputs->size(); ++i) see(made.inputs()[i].value, (*inputs)[i]);
    for (const auto& constant : made.constants()) see(constant.value, constant.tensor);
    for (const auto& node : made.nodes()) {
      if (graph::is_effect(node->op) || node->checks) continue;  // synthetic values need not pass an assertion
      const auto results = graph::evaluate(*node, [&](const Value* value) { return values.at(value); });
      if (results.size() != node->results.size()) return std::nullopt;
      for (size_t i = 0; i < results.size(); ++i) see(node->results[i], results[i]);
      values.drop_last_used_by(*node);
    }
  } catch (const std::exception&) {
    return std::nullopt;
  }
  return made;
}

/// Groups for the sizes at capture; where a call comes whose sizes are not equal where those were, so that loops do not
/// fit, others are cut for it.
class FusedGraph final : public Executable {
 public:
  FusedGraph(const Graph& graph, const std::vector<fused::FusionGroup>& parts, c10::Device device)
      : device_(device), pure_(computes_only(graph)) {
    kinds_[0] = std::make_unique<SizeSpecialization>(graph, parts, device);
    count_ = 1;
    if (can_run_again(graph)) graph_ = std::make_unique<Graph>(graph.clone());
  }

  void run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs, const CallContext& call) const override {
    const size_t count = count_.load(std::memory_order_acquire);
    const SizeSpecialization& kind = count == 1 ? *kinds_[0] : best_for(inputs, count);
    if (!kind.parts.run(inputs, outputs, call)) cut_for(inputs, kind, call);
  }

  void finish_compiling() const override {
    for (size_t i = 0; i < count_.load(std::memory_order_acquire); ++i) kinds_[i]->parts.finish_compiling();
  }
  LoopTiers loops() const override { return kinds_[0]->parts.loops(); }
  size_t spared_calls() const override { return kinds_[0]->parts.spared_calls(); }
  /// So that the bits of a result do not depend on when it was asked for.
  bool answers_capture() const override { return pure_; }
  size_t bytes() const override {
    size_t bytes = sizeof(*this);
    for (size_t i = 0; i < count_.load(std::memory_order_acquire); ++i) bytes += kinds_[i]->parts.bytes();
    return bytes;
  }

 private:
  struct SizeSpecialization {
    SizeSpecialization(const Graph& graph, const std::vector<fused::FusionGroup>& cut, c10::Device device)
        : parts(graph, cut, device), equal(graph) {}
    fused::PartSequence parts;
    EqualSizes equal;
  };
  static constexpr size_t most_kinds = 4;

  /// Of those that fit, the one that asks least: it serves most, and so gives most calls the same bits.
  const SizeSpecialization& best_for(at::ArrayRef<at::Tensor> inputs, size_t count) const {
    const SizeSpecialization* best = nullptr;
    for (size_t i = 0; i < count; ++i)
      if (kinds_[i]->equal.hold(inputs) && (!best || kinds_[i]->equal.count() < best->equal.count()))
        best = kinds_[i].get();
    return best ? *best : *kinds_[0];
  }

  void cut_for(at::ArrayRef<at::Tensor> inputs, const SizeSpecialization& kind, const CallContext& call) const {
    const bool empty = std::any_of(inputs.begin(), inputs.end(), [](const at::Tensor& t) { return t.numel() == 0; });
    if (!graph_ || empty || kind.equal.hold(inputs)) return;
    const std::unique_lock<std::mutex> lock(cutting_, std::try_to_lock);
    const size_t count = count_.load(std::memory_order_relaxed);
    if (!lock || count == most_kinds || best_for(inputs, count).equal.hold(inputs)) return;
    try {
      const Deadline bound(call.deadline);
      const auto graph = with_sizes_of(*graph_, inputs);
      if (!graph) return;
      kinds_[count] = std::make_unique<SizeSpecialization>(*graph, fused::cut(*graph, device_), device_);
      count_.store(count + 1, std::memory_order_release);
    } catch (const LimitError&) {  // the call has its answer, and another one may have more time
    }
  }

  const c10::Device device_;
  const bool pure_;
  std::unique_ptr<Graph> graph_;  // null where it cannot be run once more
  mutable std::array<std::unique_ptr<SizeSpecialization>, most_kinds> kinds_;
  mutable std::atomic<size_t> count_;
  mutable std::mutex cutting_;
};

template <class Test>
bool any_tensor(const Graph& graph, const std::vector<at::Tensor>& examples, const Test& test) {
  const auto& constants = graph.constants();
  return std::any_of(examples.begin(), examples.end(), test) ||
         std::any_of(constants.begin(), constants.end(), [&](const auto& constant) { return test(constant.tensor); });
}

/// By places in memory: what loops give does not lie as ATen's results do.
bool reads_strides(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(),
                     [](const auto& node) { return node->op.operator_name().name.rfind("aten::as_strided", 0) == 0; });
}

/// Whether a part is better than a call of the interpreter. What is small costs no more there.
bool gains(const fused::FusionGroup& part) {
  if (!part.in_place) return part.fused;
  const auto& made = part.outputs[0]->meta;
  return made && static_cast<size_t>(c10::multiply_integers(made->sizes)) * c10::elementSize(made->dtype) >=
                     fused::OutputPool::smallest;
}

/// Each operation by itself, as it is before groups are made: what it reads and writes, with types and sizes, and its
/// call.
std::string text_of_nodes(const Graph& graph) {
  std::string text;
  const auto declared = [](const Value& value) {
    return graph::describe(value) + (value.meta ? ": " + graph::type_text(*value.meta) : "");
  };
  for (const auto& node : graph.nodes()) {
    text += graph::op_name(node->op) + "\n";
    graph::for_each_use(*node, [&](const Value* value) { text += "  reads  " + declared(*value) + "\n"; });
    for (const Value* result : node->results) text += "  writes " + declared(*result) + "\n";
    text += "  body   " + graph::call_text(*node, [](const Value& value) { return graph::describe(value); }) + "\n";
  }
  return text;
}

void trace_groups(const Graph& graph, const std::vector<fused::FusionGroup>& parts) {
  messages::trace([&] {
    std::string groups;
    for (size_t i = 0; i < parts.size(); ++i) {
      const fused::FusionGroup& part = parts[i];
      std::string results;
      for (const graph::Node* node : part.nodes)
        if (!node->results.empty())
          results += (results.empty() ? "" : ",") + messages::json_text(graph::describe(*node->results[0]));
      groups += fmt::format("{}[{},[{}],{}]", groups.empty() ? "" : ",", part.fused, results,
                            messages::json_text(fused::text_of(parts, i)));
    }
    return messages::TraceEvent("groups")
        .text("name", graph.name())
        .json("groups", "[" + groups + "]")
        .graph(graph.name());
  });
}

void log_parts(const Graph& graph, const std::vector<fused::FusionGroup>& parts, messages::CompilationStep& step) {
  const auto loops = std::count_if(parts.begin(), parts.end(), [](const auto& part) { return part.fused; });
  const auto repeated = std::count_if(parts.begin(), parts.end(), [](const auto& part) { return part.same_as; });
  if (messages::logs(messages::Artefact::capture))
    step.note(fmt::format("{} groups, {} of them loops{}", parts.size(), loops,
                          repeated == 0 ? "" : fmt::format("; {} run code of another call of their region", repeated)));
  trace_groups(graph, parts);
  using messages::DebugFile;
  if (messages::wants_debug_file(DebugFile::ir_pre_fusion))
    messages::write_debug_file(DebugFile::ir_pre_fusion, text_of_nodes(graph), graph.name());
  if (messages::wants_debug_file(DebugFile::ir_post_fusion))
    messages::write_debug_file(DebugFile::ir_post_fusion, fused::text_of(parts), graph.name());
  if (messages::logs(messages::Artefact::fusion))
    messages::log_artefact(messages::Artefact::fusion, LogLevel::debug, "fusion groups of graph `" + graph.name() + "`",
                           fused::text_of(parts), graph.name());
}

/// The device of tensors that are not the host's; nothing where all are.
std::optional<c10::Device> other_device(const Graph& graph, const std::vector<at::Tensor>& examples) {
  std::optional<c10::Device> device;
  any_tensor(graph, examples, [&](const at::Tensor& tensor) {
    if (!tensor.device().is_cpu()) device = tensor.device();
    return false;
  });
  return device;
}

bool wants_gradients(const Graph& graph, const std::vector<at::Tensor>& examples) {
  return at::GradMode::is_enabled() &&
         any_tensor(graph, examples, [](const at::Tensor& tensor) { return tensor.requires_grad(); });
}

/// On a device without loops of triage every operation on flags is several calls there. As plain ATen the graph has
/// only those whose results somebody needs. Gradients need the operations themselves.
std::unique_ptr<Executable> compile_for_other_device(const Graph& graph, const std::vector<at::Tensor>& examples) {
  if (wants_gradients(graph, examples)) return compile_joint(graph, examples, "fused", compile_eager);
  return compile_eager(graph::decompose(graph, graph::Numbers::as_they_are), examples);
}

std::unique_ptr<Executable> compile_groups(const Graph& graph, const std::vector<at::Tensor>& examples) {
  if (fused::largest_cut(graph) > fused::most_nodes || reads_strides(graph) ||
      graph::OutputMemory(graph).depends_on_strides())
    return compile_eager(graph, examples);
  graph::verify(graph);
  messages::CompilationStep step(3, "fused loops", graph.name(), "fused loops of `" + graph.name() + "`");
  const c10::Device device = other_device(graph, examples).value_or(at::kCPU);
  const std::vector<fused::FusionGroup> parts = fused::cut(graph, device);
  log_parts(graph, parts, step);
  if (std::none_of(parts.begin(), parts.end(), gains))
    return device.is_cpu() ? compile_eager(graph, examples) : compile_for_other_device(graph, examples);
  return std::make_unique<FusedGraph>(graph, parts, device);
}

/// Whether loops may run there: all tensors but numbers are on that one device.
bool has_loops_for(const Graph& graph, const std::vector<at::Tensor>& examples, c10::Device device) {
  const auto elsewhere = [&](const at::Tensor& tensor) {
    return tensor.device() != device && !(tensor.device().is_cpu() && tensor.dim() == 0);
  };
  return fused::accelerator_of(device.type()) && !any_tensor(graph, examples, elsewhere);
}

}  // namespace

std::unique_ptr<Executable> compile_fused(const Graph& given_graph, const std::vector<at::Tensor>& examples) {
  std::optional<Graph> checked;
  if (!given_graph.has_recorded_types()) {
    graph::verify(given_graph);
    checked = with_types_of_run(given_graph, examples);
    if (!checked) return left_to_eager(given_graph, examples, "fused", {"its types are not known"});
  }
  const Graph& graph = checked ? *checked : given_graph;
  // What the host gives may require grad though no input does, and loops have no gradients.
  if (const graph::Node* host = at::GradMode::is_enabled() ? given::find_host_call(graph) : nullptr)
    return left_to_eager(graph, examples, "fused", {"it calls a function of the host", host->source});
  if (const auto other = other_device(graph, examples); other && !has_loops_for(graph, examples, *other))
    return compile_for_other_device(graph, examples);
  const Backend groups = with_repro_of_half(compile_groups, "fused");
  if (wants_gradients(graph, examples)) return compile_joint(graph, examples, "fused", groups);
  return groups(graph, examples);
}

}  // namespace triage
