#include "runtime/capture/branch_guard.h"

#include "runtime/capture/recorder.h"

#include <c10/core/GradMode.h>

#include <utility>

namespace triage::capture {
namespace {

thread_local BranchGuard* current_guard = nullptr;

/// The guard's own operators belong to what is around the branch.
class Suspended {
 public:
  explicit Suspended(BranchGuard* enclosing) : suspended_(current_guard) { current_guard = enclosing; }
  ~Suspended() { current_guard = suspended_; }
  Suspended(const Suspended&) = delete;
  Suspended& operator=(const Suspended&) = delete;

 private:
  BranchGuard* suspended_;
};

at::Tensor run(const char* name, std::initializer_list<c10::IValue> arguments) {
  torch::jit::Stack stack(arguments);
  call(c10::Dispatcher::singleton().findSchemaOrThrow(name, ""), stack);
  return stack.at(0).toTensor();
}

bool is_written(const c10::Argument& argument) { return argument.alias_info() && argument.alias_info()->isWrite(); }

}  // namespace

BranchGuard::BranchGuard(std::vector<at::Tensor> before, at::Tensor own)
    : before_(std::move(before)), own_(std::move(own)), enclosing_(current_guard) {
  current_guard = this;
}

BranchGuard::~BranchGuard() { current_guard = enclosing_; }

BranchGuard* BranchGuard::current() noexcept { return current_guard; }

OutsideBranches::OutsideBranches() : around_(std::exchange(current_guard, nullptr)) {}
OutsideBranches::~OutsideBranches() { current_guard = around_; }

const at::Tensor& BranchGuard::taken() {
  if (taken_.defined()) return taken_;
  at::Tensor taken = own_;
  for (const at::Tensor& condition : before_) {
    at::Tensor not_before = run("aten::logical_not", {condition});
    taken = taken.defined() ? run("aten::logical_and", {taken, not_before}) : not_before;
  }
  return taken_ = taken;
}

bool BranchGuard::is_outer_data(const at::Tensor& tensor) {
  if (!tensor.requires_grad() || made_.count(tensor.unsafeGetTensorImpl())) return false;
  if (!own_.defined() && before_.empty()) return false;  // the only branch there is
  if (taken().dim() == 0) return true;
  // A graph is replayed on batches of other sizes, so there the operator decides; what is from before the capture holds no
  // samples.
  if (const Recorder* recorder = Recorder::current()) return recorder->is_captured(tensor);
  return tensor.dim() > 0 && tensor.size(0) == taken().size(0);
}

at::Tensor BranchGuard::guarded(const at::Tensor& tensor) {
  const auto known = guarded_.find(tensor.unsafeGetTensorImpl());
  if (known != guarded_.end()) return known->second.inner;
  if (!c10::GradMode::is_enabled()) return tensor;
  const Suspended outside(enclosing_);
  if (!is_outer_data(tensor)) return tensor;
  at::Tensor inner = run("triage::guard_grad", {tensor, taken()});
  guarded_[tensor.unsafeGetTensorImpl()] = {tensor, inner};
  made_.emplace(inner.unsafeGetTensorImpl(), inner);
  return inner;
}

void BranchGuard::guard_arguments(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  if (!c10::GradMode::is_enabled()) return;
  const auto& arguments = op.schema().arguments();
  const size_t first = stack.size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    c10::IValue& value = stack[first + i];
    if (is_written(arguments[i])) continue;  // what is written is meant itself
    if (value.isTensor()) {
      if (value.toTensor().defined() && value.toTensor().requires_grad()) value = guarded(value.toTensor());
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> items = value.toTensorVector();
      for (at::Tensor& item : items)
        if (item.defined() && item.requires_grad()) item = guarded(item);
      value = items;
    }
  }
}

void BranchGuard::note_results(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto note = [this](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.requires_grad()) made_.emplace(tensor.unsafeGetTensorImpl(), tensor);
  };
  for (size_t i = stack.size() - op.schema().returns().size(); i < stack.size(); ++i) {
    if (stack[i].isTensor()) {
      note(stack[i].toTensor());
    } else if (stack[i].isTensorList()) {
      for (const at::Tensor& tensor : stack[i].toTensorVector()) note(tensor);
    }
  }
}

}  // namespace triage::capture
