#pragma once
#include <triage/backend.h>

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>

#include "runtime/backends/fused/kernels/kernel.h"
#include "runtime/backends/fused/parts/call_layout.h"
#include "runtime/backends/fused/parts/joined_outputs.h"
#include "runtime/backends/fused/parts/loop_group.h"
#include "runtime/backends/fused/parts/output_pool.h"
#include "runtime/backends/fused/parts/row_views.h"
#include "runtime/backends/fused/tape/tape.h"

namespace triage::fused {

/// A fused group at run time: the kernel where it is there and the inputs are such as it was made for, else the interpreter.
class FusedGroup final : public LoopGroup {
 public:
  /// `part.fused` holds. Outputs lie in memory of `shared`, or of pools of their own.
  FusedGroup(const FusionGroup& part, CompilerMode compiler, OutputPool* shared = nullptr);
  /// One output may come in the memory of an input that is donated: where that is dense, without grad, and shares
  /// memory with no other input.
  bool run_loops(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs,
                 const CallContext& call) const override;
  /// Of the loops in place, those that a call could have used.
  void finish_compiling() const override;
  LoopTiers loops() const override;
  size_t bytes() const override { return sizeof(*this) + interpreter_->bytes(); }

 private:
  struct Memory;  // of one call
  /// The loops as one source; compiled when a call first could use them.
  struct Version {
    std::once_flag once;
    std::shared_ptr<const Kernel> kernel;
    int64_t scratch_rows = 0;
    std::vector<ScratchSize> scratch_sizes;
    std::atomic<bool> asked{false};
    std::unique_ptr<const Tape> tape;  // null where a value has no primitive

    RowsFunction function(const FusedGroup& group, Lanes lanes, std::optional<InPlace> in_place);
    /// The scratch memory that its tape takes for rows of these extents; -1: no tape runs them. Once `function` was asked.
    int64_t tape_bytes(at::ArrayRef<int64_t> extents) const;
    void finish_compiling() const;
  };
  using Versions = std::array<Version, 3>;  // one for each of Lanes
  /// With one output in the place of an input.
  struct Variant {
    InPlace where;
    Versions versions;
  };
  struct RowsInMemory;
  template <class Loop>
  void run_rows(const RowsInMemory& rows, const Memory& memory, const Loop& loop) const;
  template <class Loop>
  void run_flat(const RowsInMemory& rows, const Memory& memory, char* scratch, int64_t begin, int64_t end,
                const Loop& loop) const;
  Variant* variant_for(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> donated, const Memory& memory,
                       const RowsInMemory& rows) const;
  const at::Tensor& read_by(size_t slot, at::ArrayRef<at::Tensor> inputs, const Memory& memory) const;
  bool reduces_short_rows(const Memory& memory) const;
  bool make_outputs(Memory& memory, std::vector<at::Tensor>& outputs, const at::Tensor* given, size_t given_for) const;

  const std::vector<Concatenation> joins_;
  const RowViews views_;
  std::vector<size_t> direct_;  // for each loop output that is no piece of a join: which output it is
  mutable Versions versions_;
  OutputPool* const shared_;
  std::unique_ptr<OutputPool[]> pools_;  // one for each output; null where they share one
  mutable std::deque<Variant> variants_;
};

}  // namespace triage::fused
