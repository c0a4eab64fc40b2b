#pragma once
#include <ATen/core/Tensor.h>
#include <runtime/flags/branches/element_masks.h>

#include <cstdint>

/// What keeps the gradients of rows, or elements, that a branch does not decide out of the others.
namespace triage::flags::autograd {

/// The gradient that enters a branch: what is not finite in rows that are not `taken`, a mask of shape (N,) or (), is
/// 0.
at::Tensor guarded_gradient(const at::Tensor& grad, const at::Tensor& taken);
/// The same of elements, where those of the gradient are known to be elements of the mask; else the gradient as it is.
at::Tensor guarded_elements(const at::Tensor& grad, const at::Tensor& taken);

/// Where a branch begins on this thread.
uint64_t branch_start();
/// Guards every edge of the autograd graph from what the branch since `start` did, to make `result`, to what was there
/// before. As `triage::guard_grad` at its entry would, for operations that are not ours to call. Where elements are
/// selected, inside of the branch as well: an operation may mix elements behind one that spoils them.
void guard_branch(const at::Tensor& result, uint64_t start, const elements::BranchMasks& taken);

/// While alive on a thread, what runs stands for calls with other values too (it is recorded as a graph, or asked which
/// outputs have gradients): a selection for the whole batch then has gradients of all branches.
class OfAllBranches {
 public:
  OfAllBranches();
  ~OfAllBranches();
  OfAllBranches(const OfAllBranches&) = delete;
  OfAllBranches& operator=(const OfAllBranches&) = delete;

 private:
  bool before_;
};

}  // namespace triage::flags::autograd
