#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <triage/error.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace triage::capture {

/// While alive on a thread, what `call` runs belongs to one branch of a selection (IF, map_ok, bind, ...). Every tensor
/// from outside that an operator of the branch takes then goes through `triage::guard_grad`: the identity, whose
/// backward makes non-finite gradients of the rows that the branch does not decide 0. Recorded or not: a captured graph
/// holds the guards on the edges that enter its branches, and eager code has the same gradients.
///
/// Only what requires grad is guarded, so code without gradients pays nothing. A tensor counts as data of the samples
/// when it has as many rows as there are samples; where the branch is for the whole batch, every tensor is guarded.
///
/// Where a condition is over elements (a mask of two or more dimensions), operators inside of the branch may mix
/// elements, and one of those would then spoil others before its gradient leaves the branch. So what other than
/// elementwise operators make of it is guarded when it is used (a view of it, before it is viewed), and what an
/// operator broadcasts is broadcast by the guard, which sums its gradient up behind the elements not taken.
class BranchGuard {
 public:
  /// Rows, or elements, of the branch: those for which none of `before` holds, and `own` (where it is defined) does.
  /// Combined when the first tensor asks. In a branch whose condition is a mask, writing to tensors that were made
  /// outside of it raises PolicyError, for the branch runs for every sample. A branch of natural Lua, where that holds
  /// for every condition, says on which coroutine it runs, as `thread`. It ends where it may be out of order (a
  /// coroutine that was given up), so it leaves only guards that it finds.
  BranchGuard(std::vector<at::Tensor> before, at::Tensor own, const void* thread = nullptr);
  ~BranchGuard();
  BranchGuard(const BranchGuard&) = delete;
  BranchGuard& operator=(const BranchGuard&) = delete;

  /// The innermost of this thread; null outside of branches.
  static BranchGuard* current() noexcept;

  /// The branches of natural Lua that run on this thread: how many, and a number of the outermost, unique in the
  /// process.
  struct Selection {
    uint64_t serial = 0;
    int depth = 0;
    const void* thread = nullptr;  // of the innermost
  };
  static Selection selection() noexcept;
  /// Whether one of those chooses for each sample.
  static bool chooses_per_sample() noexcept;
  /// Raises PolicyError where such a branch runs, and `tensor` was not made in it: what `change` does to it, it does
  /// for all samples.
  static void refuse_change(const at::Tensor& tensor, const std::string& change);

  /// What code of the branch sees in place of `tensor`.
  at::Tensor guarded(const at::Tensor& tensor);

 private:
  friend void call_plainly(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  void guard_arguments(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  /// `arguments`: what the operator took, guarded; empty where no branch selects.
  void note_results(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                    const torch::jit::Stack& stack);
  void note_views(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                  const torch::jit::Stack& stack);
  bool is_outer_data(const at::Tensor& tensor);
  const at::Tensor& taken();
  /// Of this branch and those around it; masks of the same sizes are one.
  const std::vector<at::Tensor>& taken_elements();
  void take_elements(const at::Tensor& mask);
  at::Tensor guarded_rows(const at::Tensor& tensor);
  /// Where elements are selected: by samples of which no element is.
  at::Tensor guarded_samples(const at::Tensor& tensor);
  /// For an operator that broadcasts it to `others`, or where that is null mixes elements.
  at::Tensor guarded_elements(const at::Tensor& tensor, const std::vector<at::Tensor>* others);
  at::Tensor guarded_as(const at::Tensor& tensor, const at::Tensor& like);
  struct MixedView;
  /// Of this branch or one around it, while both tensors have the form that they had then; null: it is none.
  const MixedView* find_view(const at::Tensor& tensor) const;
  std::optional<at::Tensor> view_of_guarded(const at::Tensor& tensor);
  /// Runs for samples that it does not decide; in natural Lua as a graph holds it, whatever the condition.
  bool runs_for_all() const noexcept { return natural_ || per_sample_; }
  /// It, or a branch around it, does.
  bool selects() const noexcept { return selects_; }
  /// All rows that come this far are its own: a script that a condition of the batch decided. It is a part of the
  /// branch around it.
  bool is_only_branch() const noexcept { return !own_.defined() && before_.empty(); }
  void refuse_writes(const c10::OperatorHandle& op, const torch::jit::Stack& stack) const;
  void note_storages(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                     const torch::jit::Stack& stack);
  bool made_storage(const at::Tensor& tensor) const;
  bool is_from_outside(const at::Tensor& tensor) const;

  struct Guarded {
    at::Tensor outer;  // keeps the TensorImpl alive, so that its address stays unique
    at::Tensor inner;
  };
  std::vector<at::Tensor> before_;
  at::Tensor own_, taken_;
  std::vector<at::Tensor> taken_elements_, taken_samples_;  // of each mask of elements, the samples that have one
  std::unordered_map<const c10::TensorImpl*, Guarded> guarded_;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> made_;  // results of the branch that require grad
  std::unordered_set<const c10::TensorImpl*> mixed_;  // of these, what an operator made that may mix elements
  struct MixedView {
    at::Tensor of;
    std::vector<int64_t> form, form_of;  // of the view, and of what is viewed: `t_` and others change them in place
    c10::OperatorHandle op;
    std::vector<c10::IValue> arguments;
    size_t taken_from, result;  // positions of `of` among the arguments, and of the view among the results
  };
  std::unordered_map<const c10::TensorImpl*, MixedView>
      views_;  // of mixed ones: a view may have other sizes than the mask
  struct GuardedElements {
    at::Tensor outer, like, inner;
    uint32_t version = 0;  // what was written to since is another value
  };
  std::map<std::pair<const c10::TensorImpl*, const c10::TensorImpl*>, GuardedElements> guarded_elements_;
  BranchGuard* enclosing_;
  bool natural_;
  bool per_sample_;  // a condition of its own is a mask
  bool selects_;
  bool selects_elements_;
  Selection selection_;
  std::unordered_set<const void*> storages_;  // made in the branch; of tensors without one (yet) the TensorImpl
};

/// Unwinds the script out of a branch that the batch does not take.
class CaptureAbort : public PolicyError {
 public:
  using PolicyError::PolicyError;
};

/// While alive on a thread, a branch runs that the batch does not take, for a graph must hold it all the same. What
/// cannot be in a graph must not happen there: a graph break unwinds the script. Of several such branches only the
/// outermost counts.
class UntakenBranch {
 public:
  /// How far the script is unwound. A branch of IF is a function, which can be left. A branch of natural Lua stands in
  /// the middle of one: there the whole capture is given up, and its call restarts as a script (OutsideBranches).
  enum class Unwinds : uint8_t { branch, call };
  /// `frames`: how many functions on the script's stack are around what is unwound.
  explicit UntakenBranch(Unwinds unwinds, int frames = 0);
  ~UntakenBranch();
  UntakenBranch(const UntakenBranch&) = delete;
  UntakenBranch& operator=(const UntakenBranch&) = delete;
  static bool active() noexcept;
  /// A graph break in such a branch; throws CaptureAbort.
  [[noreturn]] static void leave();
  /// The script is being unwound: whoever catches that has to go on with it (`leave`).
  static bool left() noexcept;
  /// How many functions of the script's stack stay.
  static int frames_kept() noexcept;

 private:
  const bool outermost_;
  const Unwinds unwinds_;
  const int frames_;
  bool left_ = false;
};

/// While alive, what this thread runs belongs to no branch. A capture begins so: a branch around the call that is
/// captured is none of the function's, and its rows are those of one batch.
class OutsideBranches {
 public:
  OutsideBranches();
  ~OutsideBranches();
  OutsideBranches(const OutsideBranches&) = delete;
  OutsideBranches& operator=(const OutsideBranches&) = delete;

  /// A front end can unwind the script to where it was called, with so many functions on its stack. Then, as long as
  /// nothing happened that would happen again, the capture may be given up: its call restarts, and nothing is recorded.
  static void allow_restart(int frames) noexcept;
  /// Something happened that would happen again (random numbers were drawn, a side effect was allowed).
  static void forbid_restart() noexcept;
  static bool may_restart() noexcept;
  /// The capture was given up.
  static bool aborted() noexcept;

 private:
  friend class UntakenBranch;
  BranchGuard* around_;
  UntakenBranch* untaken_;
  OutsideBranches* previous_;
  bool may_restart_ = false;
  bool aborted_ = false;
  int frames_ = 0;
};

/// While alive, code runs that may give up coroutines in the middle of a branch; behind it the branches are what they
/// were.
class KeepBranches {
 public:
  KeepBranches();
  ~KeepBranches();
  KeepBranches(const KeepBranches&) = delete;
  KeepBranches& operator=(const KeepBranches&) = delete;

 private:
  BranchGuard* around_;
};

}  // namespace triage::capture
