#include "runtime/backends/fused/parts/part_sequence.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "runtime/backends/eager.h"
#include "runtime/backends/fused/fused_group.h"
#include "runtime/backends/fused/gpu/gpu_group.h"
#include "runtime/backends/fused/loops/groups_text.h"
#include "runtime/backends/fused/parts/in_place_call.h"
#include "runtime/backends/fused/parts/kept_call.h"
#include "runtime/backends/fused/parts/pooled_call.h"
#include "runtime/backends/output_aliases.h"
#include "runtime/graph/evaluation/number_ops.h"
#include "runtime/memory/overlap.h"
#include "runtime/messages/assert.h"
#include "runtime/operators/semantics.h"

namespace triage::fused {
namespace {

using graph::Graph;
using graph::Value;

/// Whether values decide sizes: then what one call took, the next one has no use for.
bool has_dynamic_sizes(const Graph& graph) {
  using operators::Semantics;
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const auto& node) {
    const Semantics semantics = operators::semantics_of(node->op);
    return semantics.has(Semantics::dynamic) || semantics.has(Semantics::dynamic_by_mask) ||
           semantics.has(Semantics::dynamic_by_classes);
  });
}

bool has(const std::vector<size_t>& list, size_t at) { return std::find(list.begin(), list.end(), at) != list.end(); }

bool is_all_of_its_memory(const at::Tensor& tensor) { return tensor.nbytes() == tensor.storage().nbytes(); }

}  // namespace

PartSequence::PartSequence(const Graph& graph, const std::vector<FusionGroup>& parts, c10::Device device)
    : device_(device), timer_(graph.name()) {
  for (const auto& input : graph.inputs()) add(input.value);
  for (const auto& constant : graph.constants()) {
    add(constant.value);
    constants_.push_back(constant.tensor);
  }
  num_inputs_ = graph.inputs().size();
  if (parts.size() > 1 && device_.is_cpu() && !has_dynamic_sizes(graph)) {
    size_t most = 4 * graph.outputs().size();  // a host may hold what some calls gave
    for (const FusionGroup& part : parts) most += part.outputs.size();
    shared_ = std::make_unique<OutputPool>(std::min<size_t>(most, 64));
  }
  const auto leaves = [&](const Value* value) {
    const auto& outputs = graph.outputs();
    return std::find(outputs.begin(), outputs.end(), value) != outputs.end();
  };
  for (const FusionGroup& part : parts) add_step(part, std::any_of(part.outputs.begin(), part.outputs.end(), leaves));
  for (const Value* value : graph.outputs()) outputs_.push_back(registers_.at(value));
  count_ = registers_.size();
  registers_.clear();
  whole_ = steps_.size() == 1 ? steps_[0].group : nullptr;
  if (!whole_ || !makes_all_outputs(steps_[0]) || !reads_all_inputs(steps_[0])) whole_ = nullptr;
  direct_ = whole_ && steps_[0].outputs == outputs_ && takes_the_inputs(steps_[0]);
  find_last_uses();
  TRIAGE_ASSERT(reads_what_is_there());
}

/// `leaves`: what it computes is an output of the graph.
void PartSequence::add_step(const FusionGroup& part, bool leaves) {
  PartStep step;
  for (const Value* value : part.inputs) step.inputs.push_back(registers_.at(value));
  for (const Value* value : part.outputs) step.outputs.push_back(add(value));
  if (part.same_as) {
    timer_.repeat_part(*part.same_as);
    step.run = steps_[*part.same_as].run;
    step.group = steps_[*part.same_as].group;
    step.repeats = true;
    step.keeps = steps_[*part.same_as].keeps;
  } else if (part.fused) {
    std::unique_ptr<LoopGroup> group;
    if (device_.is_cpu())
      group = std::make_unique<FusedGroup>(part, shared_.get());
    else
      group = std::make_unique<GpuGroup>(part, device_);
    step.group = group.get();
    step.run = std::move(group);
  } else if (!device_.is_cpu()) {
    step.run = compile_eager_as_it_is(graph::decompose(part.graph, graph::Numbers::as_they_are));
  } else if (part.pooled) {
    step.run = std::make_unique<PooledCall>(part, pool_of_call());
  } else if (part.in_place) {
    step.run = std::make_unique<InPlaceCall>(part);
  } else if (!leaves && KeptCall::takes(part)) {
    step.run = std::make_unique<KeptCall>(part);
    step.keeps = true;
  } else {
    step.run = compile_eager_as_it_is(part.graph);
  }
  if (!part.same_as) timer_.add_part(label_of(part), lines_of(part), step.group ? &step.group->lines() : nullptr);
  step.overwrites = part.fused || part.in_place;
  step.may_share = !part.fused && !part.pooled;
  kept_.resize(registers_.size());
  for (const size_t at : step.outputs) kept_[at] = step.keeps;
  steps_.push_back(std::move(step));
}

OutputPool& PartSequence::pool_of_call() { return shared_ ? *shared_ : own_.emplace_back(); }

void PartSequence::find_last_uses() {
  std::vector<bool> used(count_);
  for (size_t at = 0; at < count_; ++at)
    used[at] = is_lasting(at);  // who would write to memory looks for it in the file
  for (const size_t at : outputs_) used[at] = true;
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step)
    for (const auto* list : {&step->inputs, &step->outputs})
      for (const size_t at : *list) {
        if (!used[at]) step->done.push_back(at);
        used[at] = true;
      }
}

/// Each register is read after it is written, and not after it is given back.
bool PartSequence::reads_what_is_there() const {
  std::vector<bool> there(count_);
  std::fill_n(there.begin(), num_inputs_ + constants_.size(), true);
  const auto is_there = [&](size_t at) { return there[at]; };
  for (const PartStep& step : steps_) {
    if (!std::all_of(step.inputs.begin(), step.inputs.end(), is_there)) return false;
    for (const size_t at : step.outputs) there[at] = true;
    for (const size_t at : step.done) there[at] = false;
  }
  return std::all_of(outputs_.begin(), outputs_.end(), is_there);
}

bool PartSequence::makes_all_outputs(const PartStep& step) const {
  return std::all_of(outputs_.begin(), outputs_.end(), [&](size_t at) { return has(step.outputs, at); });
}

bool PartSequence::reads_all_inputs(const PartStep& step) const {
  for (size_t i = 0; i < num_inputs_; ++i)
    if (!has(step.inputs, i)) return false;
  return true;
}

/// The graph's inputs, all and in order?
bool PartSequence::takes_the_inputs(const PartStep& step) const {
  bool same = step.inputs.size() == num_inputs_;
  for (size_t i = 0; same && i < num_inputs_; ++i) same = step.inputs[i] == i;
  return same;
}

bool PartSequence::run(at::ArrayRef<at::Tensor> inputs, Tensors& outputs, const CallContext& call) const {
  if (inputs.size() != num_inputs_)
    throw InputError("the graph takes " + std::to_string(num_inputs_) + " inputs, got " +
                     std::to_string(inputs.size()));
  if (!timer_.is_on() || !device_.is_cpu()) return run_parts(inputs, outputs, call, nullptr);
  TimedCall timed(steps_.size());
  const bool fits = run_parts(inputs, outputs, call, &timed);
  timer_.add(timed);
  return fits;
}

bool PartSequence::run_parts(at::ArrayRef<at::Tensor> inputs, Tensors& outputs, const CallContext& call,
                             TimedCall* timed) const {
  const auto run_part = [&](size_t number, const auto& run) {
    return timed ? timed->part(number, run) : run(static_cast<StepTimes*>(nullptr));
  };
  if (direct_) return run_part(0, [&](StepTimes* times) { return whole_->run_loops(inputs, outputs, call, times); });
  if (shared_) shared_->begin_call(inputs);
  RegisterFile file{{inputs.begin(), inputs.end()}, {}};
  file.tensors.insert(file.tensors.end(), constants_.begin(), constants_.end());
  file.memory.reserve(count_);
  for (const at::Tensor& tensor : file.tensors) file.memory.push_back(memory_of(tensor));
  file.tensors.resize(count_);
  file.memory.resize(count_);
  Tensors made;
  bool fits = true;
  for (size_t number = 0; number < steps_.size(); ++number) {
    const PartStep& step = steps_[number];
    made.clear();
    fits &= run_part(number, [&](StepTimes* times) { return run(step, file, made, call, times); });
    if (step.may_share) own_outputs(step, file, made);
    keep_results(step, file, made);
  }
  for (const size_t at : outputs_) outputs.push_back(is_lasting(at) ? own_copy(file.tensors[at]) : file.tensors[at]);
  return fits;
}

void PartSequence::keep_results(const PartStep& step, RegisterFile& file, Tensors& made) const {
  for (size_t i = 0; i < made.size(); ++i) {
    file.memory[step.outputs[i]] = memory_of(made[i]);
    file.tensors[step.outputs[i]] = std::move(made[i]);
  }
  for (const size_t at : step.done) {
    file.tensors[at].reset();
    if (is_made(at)) file.memory[at] = {};
  }
}

bool PartSequence::run(const PartStep& step, const RegisterFile& file, Tensors& made, const CallContext& call,
                       StepTimes* times) const {
  Tensors given, donated;
  for (const size_t at : step.inputs) given.push_back(file.tensors[at]);
  if (step.overwrites)
    for (const size_t at : step.inputs)
      if (is_made(at) && has(step.done, at) && is_alone(at, file)) donated.push_back(file.tensors[at]);
  if (!step.group) {
    step.run->run(given, made, {call.deadline, donated});
    return true;
  }
  if (whole_) return whole_->run_loops(given, made, call, times);
  return step.group->run_loops(given, made, {call.deadline, donated}, times);
}

/// Whether nobody else has the memory of register `at`, which is all that there is of it.
bool PartSequence::is_alone(size_t at, const RegisterFile& file) const {
  const at::Tensor& tensor = file.tensors[at];
  const MemoryRange& memory = file.memory[at];
  if (memory.begin == memory.end || !is_all_of_its_memory(tensor)) return false;
  for (size_t i = 0; i < file.memory.size(); ++i)
    if (i != at && file.memory[i].overlaps(memory)) return false;
  return true;
}

/// Copies of the results of ATen that leave the graph and have the memory of something else.
void PartSequence::own_outputs(const PartStep& step, const RegisterFile& file, Tensors& made) const {
  for (size_t i = 0; i < made.size(); ++i) {
    if (!has(outputs_, step.outputs[i])) continue;
    const bool lent = std::any_of(step.inputs.begin(), step.inputs.end(), [&](size_t at) {
      const at::Tensor& input = file.tensors[at];
      const bool handed_on = is_made(at) && has(step.done, at) && is_alone(at, file) && made[i].defined() &&
                             made[i].nbytes() == input.nbytes();
      return share_memory(input, made[i]) && !handed_on;
    });
    if (lent || shares_memory(made[i], constants_)) made[i] = own_copy(made[i]);
  }
}

void PartSequence::finish_compiling() const {
  for (const PartStep& step : steps_)
    if (!step.repeats) step.run->finish_compiling();
}

LoopTiers PartSequence::loops() const {
  LoopTiers loops;
  for (const PartStep& step : steps_)
    if (!step.repeats) loops += step.run->loops();
  return loops;
}

size_t PartSequence::spared_calls() const {
  size_t calls = 0;
  for (const PartStep& step : steps_) calls += step.group ? step.group->spared_calls() : 0;
  return calls;
}

size_t PartSequence::bytes() const {
  size_t bytes = sizeof(*this) + steps_.capacity() * sizeof(PartStep);
  for (const PartStep& step : steps_)
    if (!step.repeats) bytes += step.run->bytes();
  return bytes;
}

}  // namespace triage::fused
