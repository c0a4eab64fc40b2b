#include "runtime/diagnose/minify/reduce.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "runtime/diagnose/program_run.h"
#include "runtime/graph/copy.h"
#include "runtime/graph/evaluation/evaluate.h"
#include "runtime/graph/passes/uses.h"
#include "runtime/random/sequence.h"

namespace triage::diagnose {
namespace {

using graph::Copies;
using graph::Graph;
using graph::Value;
using Fill = ProgramInput::Fill;

constexpr size_t most_recorded_bytes = size_t{1} << 30;

ProgramInput input_of(const at::Tensor& tensor, uint64_t seed, bool with_values) {
  ProgramInput input;
  input.sizes = tensor.sizes().vec(), input.strides = tensor.strides().vec();
  input.dtype = tensor.scalar_type(), input.device = tensor.device();
  input.requires_grad = tensor.requires_grad();
  input.seed = seed;
  if (!with_values) return input;
  input.fill = Fill::values;
  input.values = tensor.detach().resolve_conj().resolve_neg().contiguous().clone();
  return input;
}

ProgramInput input_of(const std::optional<graph::TensorMeta>& meta, bool is_flags, uint64_t seed) {
  ProgramInput input;
  if (meta) input.sizes = meta->sizes, input.dtype = meta->dtype, input.device = meta->device;
  input.strides = at::empty(input.sizes, at::TensorOptions(at::kMeta)).strides().vec();
  input.seed = seed;
  if (is_flags) input.fill = Fill::zeros;
  return input;
}

/// Builds a part of a program: what is used and not made becomes an input.
class PartBuilder {
 public:
  explicit PartBuilder(const GraphProgram& from) : from_(from) {
    made_.backend = from.backend, made_.check = from.check;
    made_.backward = from.backward, made_.seed = from.seed, made_.strict = from.strict, made_.isolated = from.isolated;
    made_.memory_mib = from.memory_mib;
    made_.preamble = from.preamble, made_.comment = from.comment;
    made_.graph = Graph(from.graph.name());
    for (size_t i = 0; i < from.inputs.size(); ++i) given_[from.graph.inputs()[i].value] = i;
  }

  /// The value stands for an input of the old graph, a constant of it, or becomes the input that `otherwise` makes.
  void need(const Value* value, const std::function<ProgramInput()>& otherwise) {
    if (copies_.count(value)) return;
    if (const auto given = given_.find(value); given != given_.end()) {
      const graph::Input& input = from_.graph.inputs()[given->second];
      copies_[value] = made_.graph.add_input(input.value->name, input.kind, input.value->meta);
      made_.graph.edit(copies_[value]).is_flags = value->is_flags;
      made_.inputs.push_back(from_.inputs[given->second]);
      return;
    }
    for (const auto& constant : from_.graph.constants())
      if (constant.value == value) {
        graph::copy_constant(made_.graph, constant, copies_);
        return;
      }
    std::string name = "v" + std::to_string(value->id);
    while (from_.graph.has_name(name) || made_.graph.has_name(name)) name += "_";
    ProgramInput input = otherwise();
    copies_[value] = made_.graph.add_input(name, graph::InputKind::tensor,
                                           graph::TensorMeta{input.dtype, input.sizes, input.device});
    made_.graph.edit(copies_[value]).is_flags = value->is_flags;
    made_.inputs.push_back(std::move(input));
  }
  void add(const graph::Node& node) { graph::copy_node(made_.graph, node, copies_); }
  bool has(const Value* value) const { return copies_.count(value) > 0; }
  void stand_in(const Value* value, const Value* other) { copies_[value] = copies_.at(other); }

  GraphProgram finish(const std::vector<Value*>& outputs) {
    std::vector<Value*> copied;
    for (const Value* output : outputs) copied.push_back(copies_.at(output));
    made_.graph.set_outputs(std::move(copied));
    return std::move(made_);
  }

 private:
  const GraphProgram& from_;
  GraphProgram made_;
  Copies copies_;
  std::unordered_map<const Value*, size_t> given_;
};

ProgramInput resized(ProgramInput input, int64_t from, int64_t to) {
  bool changed = false;
  for (size_t dim = 0; dim < input.sizes.size(); ++dim) {
    if (input.sizes[dim] != from) continue;
    if (input.fill == Fill::values && to > from) input.fill = Fill::seed;
    if (input.fill == Fill::values) input.values = input.values.narrow(static_cast<int64_t>(dim), 0, to).contiguous();
    input.sizes[dim] = to;
    changed = true;
  }
  if (changed) input.strides = at::empty(input.sizes, at::TensorOptions(at::kMeta)).strides().vec();
  return input;
}

}  // namespace

std::vector<std::vector<ProgramInput>> record_values(GraphProgram& program) {
  std::vector<std::vector<ProgramInput>> recorded;
  std::unordered_map<const Value*, at::Tensor> tensors;
  const bool on_cpu = std::all_of(program.inputs.begin(), program.inputs.end(),
                                  [](const ProgramInput& input) { return input.device.is_cpu(); });
  size_t bytes = 0;
  bool runs = on_cpu;
  try {
    const at::AutoGradMode grad(program.backward);
    const random::Replay same_numbers(true, at::make_generator<at::CPUGeneratorImpl>(program.seed));
    if (runs) {
      const auto inputs = make_inputs(program);
      for (size_t i = 0; i < inputs.size(); ++i) tensors[program.graph.inputs()[i].value] = inputs[i];
      for (const auto& constant : program.graph.constants()) tensors[constant.value] = constant.tensor;
    }
    for (const auto& node : program.graph.nodes()) {
      const auto results = graph::evaluate(*node, [&](const Value* value) { return tensors.at(value); });
      recorded.emplace_back();
      for (size_t i = 0; i < node->results.size(); ++i) {
        const at::Tensor& tensor = results.at(i);
        tensors[node->results[i]] = tensor;
        if (!tensor.defined()) throw Error("an undefined result");
        program.graph.edit(node->results[i]).meta =
            graph::TensorMeta{tensor.scalar_type(), tensor.sizes().vec(), tensor.device()};
        bytes += tensor.nbytes();
        recorded.back().push_back(input_of(tensor, node->results[i]->id + 100, bytes < most_recorded_bytes));
      }
    }
    return recorded;
  } catch (const std::exception&) {  // the types that the graph declares must do
  }
  recorded.clear();
  for (const auto& node : program.graph.nodes()) {
    recorded.emplace_back();
    for (const Value* result : node->results)
      recorded.back().push_back(input_of(result->meta, result->is_flags, result->id + 100));
  }
  return recorded;
}

GraphProgram part_of(const GraphProgram& program, const std::vector<std::vector<ProgramInput>>& recorded,
                     const std::vector<bool>& keep) {
  const auto& nodes = program.graph.nodes();
  std::unordered_map<const Value*, std::pair<size_t, size_t>> places;
  std::unordered_set<const Value*> needed(program.graph.outputs().begin(), program.graph.outputs().end());
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (size_t j = 0; j < nodes[i]->results.size(); ++j) places[nodes[i]->results[j]] = {i, j};
    if (!keep[i]) graph::for_each_use(*nodes[i], [&](const Value* value) { needed.insert(value); });
  }
  PartBuilder builder(program);
  std::vector<Value*> outputs;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!keep[i]) continue;
    graph::for_each_use(*nodes[i], [&](const Value* value) {
      builder.need(value, [&] {
        const auto [node, result] = places.at(value);
        return recorded[node][result];
      });
    });
    builder.add(*nodes[i]);
    for (Value* result : nodes[i]->results)
      if (needed.count(result)) outputs.push_back(result);
  }
  if (outputs.empty())
    for (size_t i = 0; i < nodes.size(); ++i)
      if (keep[i]) outputs.assign(nodes[i]->results.begin(), nodes[i]->results.end());
  return builder.finish(outputs);
}

GraphProgram with_outputs(const GraphProgram& program, const std::vector<size_t>& outputs) {
  std::vector<Value*> wanted;
  for (const size_t output : outputs) wanted.push_back(program.graph.outputs()[output]);
  std::unordered_set<const Value*> needed(wanted.begin(), wanted.end());
  const auto& nodes = program.graph.nodes();
  std::vector<bool> keep(nodes.size());
  for (size_t i = nodes.size(); i-- > 0;) {
    keep[i] = std::any_of(nodes[i]->results.begin(), nodes[i]->results.end(),
                          [&](const Value* result) { return needed.count(result) > 0; });
    if (keep[i]) graph::for_each_use(*nodes[i], [&](const Value* value) { needed.insert(value); });
  }
  PartBuilder builder(program);
  const auto nothing = []() -> ProgramInput { throw Error("a value without a node"); };
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!keep[i]) continue;
    graph::for_each_use(*nodes[i], [&](const Value* value) { builder.need(value, nothing); });
    builder.add(*nodes[i]);
  }
  for (const Value* output : wanted) builder.need(output, nothing);
  return builder.finish(wanted);
}

GraphProgram with_merged_inputs(const GraphProgram& program, size_t from, size_t to) {
  const Value* const gone = program.graph.inputs()[from].value;
  const Value* const stays = program.graph.inputs()[to].value;
  const auto nothing = []() -> ProgramInput { throw Error("a value without a node"); };
  PartBuilder builder(program);
  for (const auto& input : program.graph.inputs())
    if (input.value != gone) builder.need(input.value, nothing);
  builder.stand_in(gone, stays);
  for (const auto& node : program.graph.nodes()) {
    graph::for_each_use(*node, [&](const Value* value) { builder.need(value, nothing); });
    builder.add(*node);
  }
  for (const Value* output : program.graph.outputs()) builder.need(output, nothing);
  return builder.finish({program.graph.outputs().begin(), program.graph.outputs().end()});
}

GraphProgram with_size(const GraphProgram& program, int64_t from, int64_t to, bool in_arguments) {
  GraphProgram made = program.clone();
  Graph small(program.graph.name());
  Copies copies;
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    made.inputs[i] = resized(program.inputs[i], from, to);
    const graph::Input& input = program.graph.inputs()[i];
    copies[input.value] =
        small.add_input(input.value->name, input.kind,
                        graph::TensorMeta{made.inputs[i].dtype, made.inputs[i].sizes, made.inputs[i].device});
    small.edit(copies[input.value]).is_flags = input.value->is_flags;
  }
  for (const auto& constant : program.graph.constants()) {
    at::Tensor tensor = constant.tensor;
    for (int64_t dim = 0; dim < tensor.dim() && to < from; ++dim)
      if (tensor.size(dim) == from) tensor = tensor.narrow(dim, 0, to).contiguous();
    copies[constant.value] = small.add_constant(tensor, constant.value->name);
    small.edit(copies[constant.value]).is_flags = constant.value->is_flags;
  }
  for (const auto& node : program.graph.nodes()) {
    graph::Node* twin = graph::copy_node(small, *node, copies);
    for (graph::Value* result : twin->results) small.edit(result).meta.reset();  // other sizes now
    if (!in_arguments) continue;
    for (graph::Operand& operand : twin->operands) {
      auto* constant = std::get_if<c10::IValue>(&operand.data);
      if (constant && constant->isIntList()) {
        std::vector<int64_t> numbers = constant->toIntVector();
        std::replace(numbers.begin(), numbers.end(), from, to);
        operand = graph::Operand(c10::IValue(numbers));
      }
      if (auto* items = std::get_if<std::vector<graph::Operand>>(&operand.data))
        for (graph::Operand& item : *items)
          if (item.constant() && item.constant()->isInt() && item.constant()->toInt() == from)
            item = graph::Operand(c10::IValue(to));
    }
  }
  std::vector<Value*> outputs;
  for (const Value* output : program.graph.outputs()) outputs.push_back(copies.at(output));
  small.set_outputs(std::move(outputs));
  made.graph = std::move(small);
  return made;
}

std::vector<size_t> delta_debug(size_t count, const std::function<bool(const std::vector<size_t>&)>& fails) {
  std::vector<size_t> items(count);
  for (size_t i = 0; i < count; ++i) items[i] = i;
  size_t pieces = 2;
  while (items.size() > 1) {
    pieces = std::min(pieces, items.size());
    const auto piece = [&](size_t number) {
      const auto at = [&](size_t n) { return items.begin() + static_cast<ptrdiff_t>(n * items.size() / pieces); };
      return std::pair{at(number), at(number + 1)};
    };
    bool smaller = false;
    for (size_t i = 0; i < pieces && !smaller; ++i) {
      const auto [begin, end] = piece(i);
      std::vector<size_t> part(begin, end);
      if (!fails(part)) continue;
      items = std::move(part), pieces = 2, smaller = true;
    }
    for (size_t i = 0; i < pieces && !smaller && pieces > 2; ++i) {  // of two pieces, the rest is the other one
      const auto [begin, end] = piece(i);
      std::vector<size_t> rest(items.begin(), begin);
      rest.insert(rest.end(), end, items.end());
      if (!fails(rest)) continue;
      items = std::move(rest), pieces = std::max<size_t>(pieces - 1, 2), smaller = true;
    }
    if (smaller) continue;
    if (pieces >= items.size()) break;
    pieces *= 2;
  }
  return items;
}

}  // namespace triage::diagnose
