#include "runtime/backends/output_aliases.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <unordered_set>

#include "runtime/backends/eager.h"
#include "runtime/graph/copy.h"
#include "runtime/graph/memory.h"
#include "runtime/graph/passes/aliases.h"
#include "runtime/graph/passes/uses.h"
#include "runtime/memory/overlap.h"
#include "runtime/messages/assert.h"
#include "runtime/operators/logical_bytes.h"

namespace triage {
namespace {

using graph::Graph;
using graph::Node;
using graph::Value;

using Values = std::unordered_set<const Value*>;

/// To be copied for each call. What a capture made is made anew; gradients reach a variable through its copy.
struct CopiedConstant {
  at::Tensor tensor;
  bool variable = false;

  at::Tensor copy() const {
    if (variable) return own_copy(tensor);
    const at::Tensor copy = own_copy(tensor.detach());
    return tensor.requires_grad() ? copy.set_requires_grad(true) : copy;
  }
};

/// A graph cut in two: what a backend computes, and behind it the calls that only say how outputs lie in memory.
struct GraphCut {
  Graph computed, behind;  // `behind` takes the inputs of the graph, what `computed` gives, and copies of constants
  std::vector<CopiedConstant> constants;
};

class OutputAliasCutter {
 public:
  OutputAliasCutter(const Graph& graph, LentMemory lent)
      : graph_(graph), lent_(lent), outputs_(graph.outputs().begin(), graph.outputs().end()), memory_(graph) {}

  /// False where a backend can have the graph as it is.
  bool needed() {
    const auto& outputs = graph_.outputs();
    return outputs_.size() < outputs.size() || std::any_of(outputs.begin(), outputs.end(), [&](const Value* output) {
             return graph_.constant_of(output) || is_made_behind(output);
           });
  }

  GraphCut run() {
    for (const Value* output : graph_.outputs())
      if (is_made_behind(output)) make_behind(output);
    TRIAGE_ASSERT(std::none_of(behind_.begin(), behind_.end(), runs_once));
    find_needed();
    GraphCut cut{computed(), Graph(graph_.name()), {}};
    build_behind(cut);
    return cut;
  }

  /// For who makes the outputs as ATen does anyway: all of the graph behind the cut.
  GraphCut run_whole() {
    for (const auto& node : graph_.nodes()) behind_.insert(node.get());
    GraphCut cut{Graph(graph_.name()), Graph(graph_.name()), {}};
    build_behind(cut);
    return cut;
  }

 private:
  /// What is made behind may be computed in front as well: a call that draws would draw twice.
  static bool runs_once(const Node* node) { return graph::draws(*node) || graph::is_effect(node->op); }

  /// A look at memory that the caller can see otherwise. What is computed may lie in another order of dims than ATen
  /// gives it: calls for which that decides whether they copy stay with the backend.
  bool is_made_behind(const Value* output) {
    if (!graph::OutputMemory::is_view(output) || runs_once(output->producer)) return false;
    if (graph::repeats_elements(output)) return true;
    const auto& roots = memory_.origin(output).roots;
    return std::any_of(roots.begin(), roots.end(), [&](const Value* root) {
      const auto& lookers = *memory_.lookers(root);
      return !root->producer || (lookers.outputs > 1 && !lookers.maybe);
    });
  }

  void make_behind(const Value* output) {
    std::vector<const Value*> left{output};
    while (!left.empty()) {
      const Value* value = left.back();
      left.pop_back();
      if (!graph::OutputMemory::is_view(value) || runs_once(value->producer)) continue;
      if (!behind_.insert(value->producer).second) continue;
      graph::for_each_shared(*value->producer, [&](Value* argument) { left.push_back(argument); });
    }
  }

  std::string name_of(const Value* value) const {
    const auto& outputs = graph_.outputs();
    const auto found = std::find(outputs.begin(), outputs.end(), value);
    if (found == outputs.end() || graph_.output_names().empty()) return "shared" + std::to_string(value->id);
    return graph_.output_names()[static_cast<size_t>(found - outputs.begin())];
  }

  /// Notes what the calls behind, and the outputs, need of the others.
  void find_needed() {
    Values known;
    const auto need = [&](const Value* value) {
      if (value->producer && !behind_.count(value->producer) && known.insert(value).second) needed_.push_back(value);
    };
    for (const Value* output : graph_.outputs()) need(output);
    for (const auto& node : graph_.nodes())
      if (behind_.count(node.get())) graph::for_each_use(*node, [&](const Value* value) { need(value); });
  }

  Graph computed() const {
    Graph graph(graph_.name());
    graph::Copies copies;
    for (const auto& input : graph_.inputs()) graph::copy_input(graph, input, copies);
    for (const auto& constant : graph_.constants()) graph::copy_constant(graph, constant, copies);
    for (const auto& node : graph_.nodes()) graph::copy_node(graph, *node, copies);
    std::vector<Value*> outputs;
    std::vector<std::string> names;
    for (const Value* value : needed_) {
      outputs.push_back(copies.at(value));
      names.push_back(name_of(value));
    }
    graph.set_outputs(std::move(outputs), std::move(names));
    graph.set_recorded_types(graph_.has_recorded_types());
    graph::eliminate_dead(graph);
    return graph;
  }

  void build_behind(GraphCut& cut) {
    Graph& graph = cut.behind;
    graph::Copies copies;
    for (const auto& input : graph_.inputs()) graph::copy_input(graph, input, copies);
    const auto add = [&](const Value* value) {
      std::string name = "made" + std::to_string(value->id);
      while (graph.has_name(name)) name += "_";
      graph::Value* copy = graph.add_input(name, graph::InputKind::tensor, value->meta);
      graph.edit(copy).is_flags = value->is_flags;
      copies[value] = copy;
    };
    for (const Value* value : needed_) add(value);
    for (const auto& constant : graph_.constants()) {
      if (!memory_.lookers(constant.value) || (constant.variable && lent_.variables)) {
        graph::copy_constant(graph, constant, copies);
      } else {
        add(constant.value);
        cut.constants.push_back({constant.tensor, constant.variable});
      }
    }
    for (const auto& node : graph_.nodes())
      if (behind_.count(node.get())) graph::copy_node(graph, *node, copies);
    std::vector<Value*> outputs;
    for (const Value* output : graph_.outputs()) outputs.push_back(copies.at(output));
    graph.set_outputs(std::move(outputs), graph_.output_names());
    graph.drop_unused_constants();
  }

  const Graph& graph_;
  LentMemory lent_;
  Values outputs_;
  graph::OutputMemory memory_;
  std::unordered_set<const Node*> behind_;
  std::vector<const Value*> needed_;
};

class CutExecutable final : public Executable {
 public:
  CutExecutable(const GraphCut& cut, const std::vector<at::Tensor>& examples, const Backend& backend, LentMemory lent)
      : computed_(cut.computed.nodes().empty() ? nullptr : backend(cut.computed, examples)),
        behind_(compile_eager_as_it_is(cut.behind)),
        constants_(cut.constants),
        lent_(lent) {}

  void run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs, const CallContext& call) const override {
    const CallContext inside{call.deadline};
    std::vector<at::Tensor> made, all(inputs.begin(), inputs.end());
    if (computed_) computed_->run(inputs, made, inside);
    all.insert(all.end(), std::make_move_iterator(made.begin()), std::make_move_iterator(made.end()));
    for (const CopiedConstant& constant : constants_) all.push_back(constant.copy());
    behind_->run(all, outputs, inside);
    if (!lent_.inputs) separate_from_inputs(inputs, outputs);
  }

  LoopTiers loops() const override { return computed_ ? computed_->loops() : LoopTiers(); }
  size_t spared_calls() const override { return computed_ ? computed_->spared_calls() : 0; }
  bool answers_capture() const override { return computed_ && computed_->answers_capture(); }
  void never_fall_back() override {
    if (computed_) computed_->never_fall_back();
  }
  std::optional<UnmaskedRows> unmasked_rows(at::ArrayRef<at::Tensor> inputs) const override {
    return computed_ ? computed_->unmasked_rows(inputs) : std::nullopt;  // views behind it mix nothing
  }
  void require_masked_rows() override {
    if (computed_) computed_->require_masked_rows();
  }
  void finish_compiling() const override {
    if (computed_) computed_->finish_compiling();
  }
  size_t bytes() const override {
    return sizeof(*this) + (computed_ ? computed_->bytes() : 0) + behind_->bytes() + graph::heap_bytes(constants_);
  }

 private:
  std::unique_ptr<Executable> computed_;  // null where there is nothing to compute
  std::unique_ptr<Executable> behind_;
  std::vector<CopiedConstant> constants_;
  LentMemory lent_;
};

}  // namespace

std::unique_ptr<Executable> compile_outputs(const Graph& graph, const std::vector<at::Tensor>& examples,
                                            const Backend& backend, LentMemory lent) {
  OutputAliasCutter cutter(graph, lent);
  if (!cutter.needed()) return backend(graph, examples);
  return std::make_unique<CutExecutable>(cutter.run(), examples, backend, lent);
}

std::unique_ptr<Executable> compile_outputs_eager(const Graph& graph, const Backend& interpreter, LentMemory lent) {
  OutputAliasCutter cutter(graph, lent);
  if (!cutter.needed()) return interpreter(graph, {});
  return std::make_unique<CutExecutable>(cutter.run_whole(), std::vector<at::Tensor>(), interpreter, lent);
}

namespace {

/// A copy of all memory that `tensor` looks into, as a row of its elements.
at::Tensor copy_of_memory(const at::Tensor& tensor) {
  const auto count = static_cast<int64_t>(tensor.storage().nbytes() / tensor.element_size());
  return at::empty({0}, tensor.options()).set_(tensor.storage(), 0, {count}, {1}).clone();
}

}  // namespace

at::Tensor own_copy(const at::Tensor& tensor) {
  constexpr double small = 64 << 20;  // bytes
  const bool is_larger =
      tensor.layout() == at::kStrided && tensor.has_storage() && !tensor.is_meta() &&
      operators::logical_bytes(tensor) > std::max(small, static_cast<double>(tensor.storage().nbytes()));
  if (!is_larger) return tensor.clone();
  if (!tensor.requires_grad() && !tensor.is_conj() && !tensor.is_neg())
    return copy_of_memory(tensor).as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  at::Tensor once = tensor;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim)
    if (tensor.stride(dim) == 0) once = once.narrow(dim, 0, 1);
  return once.clone().expand(tensor.sizes());
}

void copy_lent(std::vector<at::Tensor>& outputs, const std::function<bool(const at::Tensor&)>& is_lent) {
  const std::vector<at::Tensor> given(outputs);
  const auto first_of = [&](const auto& test) {
    return static_cast<size_t>(std::find_if(given.begin(), given.end(), test) - given.begin());
  };
  std::vector<at::Tensor> memories(given.size());  // copied ones, by the first that looks at them
  for (size_t i = 0; i < given.size(); ++i) {
    const at::Tensor& output = given[i];
    if (!output.defined() || !output.has_storage() || !is_lent(output)) continue;
    const size_t same = first_of([&](const at::Tensor& other) { return other.is_same(output); });
    if (same < i) {
      outputs[i] = outputs[same];
      continue;
    }
    const auto looks_at_it = [&](const at::Tensor& other) {
      return other.defined() && other.has_storage() && other.is_alias_of(output) &&
             other.scalar_type() == output.scalar_type() && !other.requires_grad() && is_lent(other);
    };
    const bool shared = std::any_of(given.begin(), given.end(), [&](const at::Tensor& other) {
      return !other.is_same(output) && looks_at_it(other);
    });
    if (!shared || output.requires_grad()) {
      outputs[i] = own_copy(output);
      continue;
    }
    at::Tensor& memory = memories[first_of(looks_at_it)];
    if (!memory.defined()) memory = copy_of_memory(output);
    outputs[i] = memory.as_strided(output.sizes(), output.strides(), output.storage_offset());
  }
}

void separate_from_inputs(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs) {
  copy_lent(outputs, [&](const at::Tensor& output) {
    bool shares = false;
    for (const auto& input : inputs) {
      if (output.is_same(input)) return false;
      shares |= share_memory(input, output);
    }
    return shares;
  });
}

}  // namespace triage
