#pragma once
#include <triage/backend.h>

#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime/backends/fused/fusion_groups.h"
#include "runtime/backends/fused/parts/loop_group.h"
#include "runtime/backends/fused/parts/output_pool.h"
#include "runtime/backends/fused/parts/part_times.h"
#include "runtime/memory/overlap.h"

namespace triage::fused {

/// The parts of a graph, which run one after the other on a file of registers: the inputs and constants of the graph,
/// and what parts made. A part gives its memory back when nobody reads it any more: to the part that reads it last,
/// where that can write in its place, else to those that follow.
class PartSequence {
 public:
  /// `device`: where loops run.
  PartSequence(const graph::Graph& graph, const std::vector<FusionGroup>& parts, c10::Device device);
  /// False where loops were made for other sizes.
  bool run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs, const CallContext& call) const;
  void finish_compiling() const;
  LoopTiers loops() const;
  size_t spared_calls() const;
  size_t bytes() const;

 private:
  using Registers = std::vector<size_t>;
  using Tensors = std::vector<at::Tensor>;
  struct PartStep {
    std::shared_ptr<Executable> run;
    bool repeats = false;              // an earlier step's, for another call of its region
    const LoopGroup* group = nullptr;  // where it is one
    bool overwrites = false;           // it can write in the place of what it reads
    bool may_share = false;            // its results may have the memory of what it reads
    bool keeps = false;                // its results are later calls', too
    Registers inputs, outputs, done;   // done: what nobody reads after it
  };
  /// The registers of a call. The memory of an input stays the host's when no step reads it any more.
  struct RegisterFile {
    Tensors tensors;
    std::vector<MemoryRange> memory;
  };
  void add_step(const FusionGroup& part, bool leaves);
  OutputPool& pool_of_call();
  void find_last_uses();
  bool reads_what_is_there() const;
  bool makes_all_outputs(const PartStep& step) const;
  bool reads_all_inputs(const PartStep& step) const;
  bool takes_the_inputs(const PartStep& step) const;
  /// Of more than one call: nobody may write to it, or get it as an output.
  bool is_lasting(size_t at) const { return (at >= num_inputs_ && at < num_inputs_ + constants_.size()) || kept_[at]; }
  bool is_made(size_t at) const { return at >= num_inputs_ + constants_.size() && !is_lasting(at); }
  bool run_parts(at::ArrayRef<at::Tensor> inputs, Tensors& outputs, const CallContext& call, TimedCall* timed) const;
  bool run(const PartStep& step, const RegisterFile& file, Tensors& made, const CallContext& call,
           StepTimes* times) const;
  void keep_results(const PartStep& step, RegisterFile& file, Tensors& made) const;
  bool is_alone(size_t at, const RegisterFile& file) const;
  void own_outputs(const PartStep& step, const RegisterFile& file, Tensors& made) const;
  size_t add(const graph::Value* value) { return registers_.emplace(value, registers_.size()).first->second; }

  c10::Device device_;
  std::unordered_map<const graph::Value*, size_t> registers_;  // empty once it is built
  size_t num_inputs_ = 0, count_ = 0;
  Tensors constants_;
  std::unique_ptr<OutputPool> shared_;  // of all parts, where there are several
  std::deque<OutputPool> own_;          // of calls, where there is none
  std::vector<PartStep> steps_;
  Registers outputs_;
  std::vector<bool> kept_;            // registers of steps that keep their results
  const LoopGroup* whole_ = nullptr;  // where one step is everything
  bool direct_ =
      false;  // then, where it takes the inputs and gives the outputs as they stand: the call goes straight to it
  mutable PartTimer timer_;
};

}  // namespace triage::fused
