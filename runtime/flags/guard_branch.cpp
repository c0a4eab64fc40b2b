#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <runtime/flags/gradients.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <limits>
#include <memory>
#include <unordered_set>
#include <vector>

namespace triage::flags::autograd {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

/// Guards gradients on their way out of a branch.
class GuardOut : public torch::autograd::FunctionPostHook {
 public:
  GuardOut(std::vector<size_t> edges, at::Tensor taken) : edges_(std::move(edges)), taken_(std::move(taken)) {}

  variable_list operator()(const variable_list& outputs, const variable_list& /*inputs*/) override {
    variable_list guarded = outputs;
    for (size_t edge : edges_) {
      at::Tensor& grad = guarded[edge];
      // What holds no row for each sample (a weight, a sum over the batch) is nobody's row.
      if (grad.defined() && (taken_.dim() == 0 || (grad.dim() > 0 && grad.size(0) == taken_.size(0))))
        grad = guarded_gradient(grad, taken_);
    }
    return guarded;
  }

 private:
  std::vector<size_t> edges_;
  at::Tensor taken_;
};

/// Numbers are those of the thread. Leaves have the largest, whenever they were made.
bool is_of_branch(const Node* node, uint64_t start, uint64_t thread) {
  return node && node->thread_id() == thread && node->sequence_nr() >= start &&
         node->sequence_nr() != std::numeric_limits<uint64_t>::max();
}

}  // namespace

uint64_t branch_start() { return at::sequence_number::peek(); }

void guard_branch(const at::Tensor& result, uint64_t start, const at::Tensor& taken) {
  const uint64_t thread = at::RecordFunction::currentThreadId();
  if (!result.requires_grad() || !is_of_branch(result.grad_fn().get(), start, thread)) return;
  std::vector<Node*> open{result.grad_fn().get()};
  std::unordered_set<Node*> seen(open.begin(), open.end());
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    std::vector<size_t> leaving;
    const auto& edges = node->next_edges();
    for (size_t i = 0; i < edges.size(); ++i) {
      Node* next = edges[i].function.get();
      if (!is_of_branch(next, start, thread)) {
        if (next) leaving.push_back(i);
      } else if (seen.insert(next).second) {
        open.push_back(next);
      }
    }
    if (!leaving.empty()) node->add_post_hook(std::make_unique<GuardOut>(std::move(leaving), taken));
  }
}

}  // namespace triage::flags::autograd
