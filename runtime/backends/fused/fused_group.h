#pragma once
#include <triage/backend.h>

#include <array>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "runtime/backends/fused/parts/call_layout.h"
#include "runtime/backends/fused/parts/joined_outputs.h"
#include "runtime/backends/fused/parts/loop_group.h"
#include "runtime/backends/fused/parts/output_pool.h"
#include "runtime/backends/fused/parts/row_views.h"
#include "runtime/backends/fused/tape/tape.h"

namespace triage::fused {

/// The listing of the tape that a group of the CPU runs for the sizes at capture; empty where a value has no primitive.
std::string listing_of(const FusionGroup& part);

/// A fused group at run time: its tape, where the inputs are such as it was made for, else the interpreter.
class FusedGroup final : public LoopGroup {
 public:
  /// `part.fused` holds. Outputs lie in memory of `shared`, or of pools of their own.
  explicit FusedGroup(const FusionGroup& part, OutputPool* shared = nullptr);
  /// One output may come in the memory of an input that is donated: where that is dense, without grad, and shares
  /// memory with no other input.
  bool run_row_major(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs, const CallContext& call,
                     StepTimes* times) const override;
  LoopTiers loops() const override;
  size_t bytes() const override { return sizeof(*this) + interpreter_->bytes(); }

 private:
  struct FusedCallMemory;  // of one call
  /// Made when a call first could use it. `tape` is null where a value has no primitive.
  struct MadeOnce {
    std::once_flag once;
    std::unique_ptr<const Tape> tape;
  };
  using Tapes = std::array<MadeOnce, 3>;  // one for each of Lanes
  /// With one output in the place of an input.
  struct InPlaceVariant {
    InPlace where;
    Tapes tapes;
  };
  const Tape* tape(Tapes& tapes, Lanes lanes, std::optional<InPlace> in_place) const;
  struct RowsInMemory;
  void run_rows(const RowsInMemory& rows, const FusedCallMemory& memory, const Tape& loops, StepTimes* times) const;
  void run_flat(const RowsInMemory& rows, const FusedCallMemory& memory, char* scratch, int64_t begin, int64_t end,
                const Tape& loops, StepTimes* times) const;
  InPlaceVariant* variant_for(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> donated,
                              const FusedCallMemory& memory, const RowsInMemory& rows) const;
  const at::Tensor& read_by(size_t slot, at::ArrayRef<at::Tensor> inputs, const FusedCallMemory& memory) const;
  bool reduces_short_rows(const FusedCallMemory& memory) const;
  bool make_outputs(FusedCallMemory& memory, std::vector<at::Tensor>& outputs, const at::Tensor* given,
                    size_t given_for) const;

  const std::vector<Concatenation> joins_;
  const RowViews views_;
  std::vector<size_t> direct_;  // for each loop output that is no piece of a join: which output it is
  mutable Tapes tapes_;
  OutputPool* const shared_;
  std::unique_ptr<OutputPool[]> pools_;  // one for each output; null where they share one
  mutable OutputPool copies_{4};         // dense ones of inputs, where there is no shared one
  mutable std::deque<InPlaceVariant> variants_;
};

}  // namespace triage::fused
