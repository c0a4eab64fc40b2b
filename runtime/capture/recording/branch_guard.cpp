#include "runtime/capture/recording/branch_guard.h"
#include "runtime/capture/rules/arguments.h"

#include "runtime/capture/context.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/rules/rules.h"

#include <ATen/ExpandUtils.h>
#include <c10/core/GradMode.h>
#include <runtime/flags/branches/element_masks.h>
#include <runtime/operators/semantics.h>
#include <triage/error.h>

#include <algorithm>
#include <atomic>
#include <utility>

namespace triage::capture {

using operators::ResultSizes;
namespace elements = flags::elements;

namespace {

/// The guard's own operators belong to what is around the branch.
class Suspended {
 public:
  explicit Suspended(BranchGuard* enclosing) : suspended_(context.branch) { context.branch = enclosing; }
  ~Suspended() { context.branch = suspended_; }
  Suspended(const Suspended&) = delete;
  Suspended& operator=(const Suspended&) = delete;

 private:
  BranchGuard* suspended_;
};

at::Tensor run(const char* name, std::initializer_list<c10::IValue> arguments, const char* overload = "") {
  torch::jit::Stack stack(arguments);
  call(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload), stack);
  return stack.at(0).toTensor();
}

bool keeps_elements(const c10::OperatorHandle& op) {
  const ResultSizes sizes = operators::semantics_of(op).sizes;
  return sizes == ResultSizes::broadcast || sizes == ResultSizes::either;
}

/// An element of an argument is none of the result.
bool is_product(const c10::OperatorHandle& op) {
  const ResultSizes sizes = operators::semantics_of(op).sizes;
  return sizes == ResultSizes::linear || sizes == ResultSizes::matmul || sizes == ResultSizes::addmm ||
         sizes == ResultSizes::embedding || sizes == ResultSizes::convolution;
}

/// Whether an operator that broadcasts the two gives more elements than `tensor` has. A graph holds where the answer is
/// the same.
bool grows(const at::Tensor& tensor, const at::Tensor& other) {
  if (!at::are_expandable(tensor.sizes(), other.sizes())) return false;  // the operator says so
  if (other.dim() > tensor.dim()) return true;
  std::vector<SizeFact> facts;
  for (int64_t dim = other.dim(), own = tensor.dim(); dim-- > 0;) {
    --own;
    if (tensor.size(own) == 1 && other.size(dim) != 1) return true;
    if (tensor.size(own) == other.size(dim))
      facts.push_back({tensor, own, other, dim});
    else
      facts.push_back({other, dim, {}, 0});
  }
  if (Recorder* recorder = Recorder::current()) recorder->sizes().rely_on(facts);
  return false;
}

bool is_per_sample(const at::Tensor& condition) { return condition.defined() && condition.dim() > 0; }

/// What messages call a branch.
const char* branch_text(bool natural) {
  return natural ? "a branch of an `if` whose condition is a mask" : "a branch whose condition is a mask";
}

/// Sizes, strides and offset.
std::vector<int64_t> form_of(const at::Tensor& tensor) {
  std::vector<int64_t> form = tensor.sizes().vec();
  if (tensor.layout() != c10::kStrided) return form;
  form.insert(form.end(), tensor.strides().begin(), tensor.strides().end());
  form.push_back(tensor.storage_offset());
  return form;
}

uint32_t version_of(const at::Tensor& tensor) { return tensor.is_inference() ? 0 : tensor._version(); }

bool may_require_grad(const at::Tensor& tensor) {
  const Recorder* const recorder = Recorder::current();
  return tensor.requires_grad() || (recorder && recorder->may_require_grad(tensor));
}

}  // namespace

BranchGuard::BranchGuard(std::vector<at::Tensor> before, at::Tensor own, const void* thread)
    : before_(std::move(before)),
      own_(std::move(own)),
      enclosing_(context.branch),
      natural_(thread != nullptr),
      per_sample_(is_per_sample(own_) || std::any_of(before_.begin(), before_.end(), is_per_sample)),
      selects_(runs_for_all() || (enclosing_ && enclosing_->selects_)),
      selects_elements_((own_.defined() && elements::is_mask(own_)) ||
                        std::any_of(before_.begin(), before_.end(), elements::is_mask) ||
                        (enclosing_ && enclosing_->selects_elements_)) {
  static std::atomic<uint64_t> last_serial{0};
  if (enclosing_) selection_ = enclosing_->selection_;
  if (natural_) {
    if (selection_.depth++ == 0) selection_.serial = ++last_serial;
    selection_.thread = thread;
  }
  context.branch = this;
}

BranchGuard::~BranchGuard() {
  const BranchGuard* found = context.branch;
  while (found && found != this) found = found->enclosing_;
  if (!found) return;
  if (enclosing_ && enclosing_->selects()) enclosing_->storages_.insert(storages_.begin(), storages_.end());
  context.branch = enclosing_;
}

BranchGuard::Selection BranchGuard::selection() noexcept {
  return context.branch ? context.branch->selection_ : Selection{};
}

BranchGuard* BranchGuard::current() noexcept { return context.branch; }

UntakenBranch::UntakenBranch(Unwinds unwinds, int frames)
    : outermost_(!context.untaken_branch), unwinds_(unwinds), frames_(frames) {
  if (outermost_) context.untaken_branch = this;
}
/// A branch of natural Lua may end out of order.
UntakenBranch::~UntakenBranch() {
  if (context.untaken_branch == this) context.untaken_branch = nullptr;
}
bool UntakenBranch::active() noexcept { return context.untaken_branch != nullptr; }
bool UntakenBranch::left() noexcept {
  return (context.untaken_branch && context.untaken_branch->left_) || OutsideBranches::aborted();
}
int UntakenBranch::frames_kept() noexcept {
  if (context.untaken_branch && context.untaken_branch->unwinds_ == Unwinds::branch)
    return context.untaken_branch->frames_;
  return context.outside_branches ? context.outside_branches->frames_ : 0;
}

void UntakenBranch::leave() {
  if (context.untaken_branch && context.untaken_branch->unwinds_ == Unwinds::branch)
    context.untaken_branch->left_ = true;
  else if (OutsideBranches::may_restart())
    context.outside_branches->aborted_ = true;
  else
    throw PolicyError(
        "an `if` on a condition of shape () has a branch that this batch does not take and that no graph can hold, and "
        "the call cannot restart as a script after its side effects. Write the branch as IF(cond, function() ... end), "
        "or call the function without compiling it.");
  throw CaptureAbort("a branch is left that this batch does not take");
}

OutsideBranches::OutsideBranches()
    : around_(std::exchange(context.branch, nullptr)),
      untaken_(std::exchange(context.untaken_branch, nullptr)),
      previous_(std::exchange(context.outside_branches, this)) {}
OutsideBranches::~OutsideBranches() {
  context.branch = around_;
  context.untaken_branch = untaken_;
  context.outside_branches = previous_;
}

void OutsideBranches::allow_restart(int frames) noexcept {
  if (!context.outside_branches) return;
  context.outside_branches->may_restart_ = true;
  context.outside_branches->frames_ = frames;
}
/// What happens in a branch that is not taken does not happen again.
void OutsideBranches::forbid_restart() noexcept {
  if (context.outside_branches && !context.untaken_branch) context.outside_branches->may_restart_ = false;
}
bool OutsideBranches::may_restart() noexcept {
  return context.outside_branches && context.outside_branches->may_restart_;
}
bool OutsideBranches::aborted() noexcept { return context.outside_branches && context.outside_branches->aborted_; }

KeepBranches::KeepBranches() : around_(context.branch) {}
KeepBranches::~KeepBranches() { context.branch = around_; }

const at::Tensor& BranchGuard::taken() {
  if (taken_.defined()) return taken_;
  const auto counts = [](const at::Tensor& condition) { return condition.defined() && !elements::is_mask(condition); };
  at::Tensor taken = counts(own_) ? own_ : at::Tensor();
  for (const at::Tensor& condition : before_) {
    if (!counts(condition)) continue;
    at::Tensor not_before = run("aten::logical_not", {condition});
    taken = taken.defined() ? run("aten::logical_and", {taken, not_before}) : not_before;
  }
  return taken_ = taken;
}

const std::vector<at::Tensor>& BranchGuard::taken_elements() {
  if (!taken_elements_.empty() || !selects_elements_) return taken_elements_;
  if (own_.defined() && elements::is_mask(own_)) take_elements(own_);
  for (const at::Tensor& condition : before_)
    if (elements::is_mask(condition)) take_elements(run("aten::logical_not", {condition}));
  if (enclosing_)
    for (const at::Tensor& mask : enclosing_->taken_elements()) take_elements(mask);
  return taken_elements_;
}

void BranchGuard::take_elements(const at::Tensor& mask) {
  for (at::Tensor& known : taken_elements_) {
    if (known.sizes() != mask.sizes()) continue;
    std::vector<SizeFact> facts;
    for (int64_t dim = 0; dim < mask.dim(); ++dim) facts.push_back({known, dim, mask, dim});
    if (Recorder* recorder = Recorder::current()) recorder->sizes().rely_on(facts);
    known = run("aten::logical_and", {known, mask});
    return;
  }
  taken_elements_.push_back(mask);
}

bool BranchGuard::is_outer_data(const at::Tensor& tensor) {
  if (!may_require_grad(tensor) || made_.count(tensor.unsafeGetTensorImpl())) return false;
  if (taken().dim() == 0) return true;
  // A graph is replayed on batches of other sizes, so there the operator decides; what is from before the capture holds
  // no samples.
  if (const Recorder* recorder = Recorder::current()) return recorder->tensors().is_captured(tensor);
  return tensor.dim() > 0 && tensor.size(0) == taken().size(0);
}

at::Tensor BranchGuard::guarded(const at::Tensor& tensor) {
  if (!c10::GradMode::is_enabled() || !may_require_grad(tensor)) return tensor;
  if (is_only_branch()) return enclosing_ ? enclosing_->guarded(tensor) : tensor;
  return selects_elements_ ? guarded_elements(tensor, nullptr) : guarded_rows(tensor);
}

at::Tensor BranchGuard::guarded_samples(const at::Tensor& tensor) {
  const auto known = guarded_.find(tensor.unsafeGetTensorImpl());
  if (known != guarded_.end()) return known->second.inner;
  at::Tensor inner = guarded_rows(tensor);
  const Suspended outside(enclosing_);
  const std::vector<at::Tensor>& masks = taken_elements();
  taken_samples_.resize(masks.size());
  for (size_t i = 0; i < masks.size() && tensor.dim() > 0; ++i) {
    const at::Tensor& mask = masks[i];
    // A mask of fewer dimensions broadcasts: its first one may be another than that of the samples.
    if (mask.dim() < tensor.dim() || mask.size(0) != tensor.size(0)) continue;
    if (Recorder* recorder = Recorder::current()) recorder->sizes().rely_on({{mask, 0, tensor, 0}});
    if (!taken_samples_[i].defined())
      taken_samples_[i] = run("aten::any", {run("aten::flatten", {mask, 1, -1}, "using_ints"), 1, false}, "dim");
    inner = run("triage::guard_grad", {inner, taken_samples_[i]});
    made_.emplace(inner.unsafeGetTensorImpl(), inner);
  }
  guarded_[tensor.unsafeGetTensorImpl()] = {tensor, inner};
  return inner;
}

at::Tensor BranchGuard::guarded_rows(const at::Tensor& tensor) {
  const auto known = guarded_.find(tensor.unsafeGetTensorImpl());
  if (known != guarded_.end()) return known->second.inner;
  const Suspended outside(enclosing_);
  if (!taken().defined() || !is_outer_data(tensor)) return tensor;
  at::Tensor inner = run("triage::guard_grad", {tensor, taken()});
  guarded_[tensor.unsafeGetTensorImpl()] = {tensor, inner};
  made_.emplace(inner.unsafeGetTensorImpl(), inner);
  return inner;
}

at::Tensor BranchGuard::guarded_elements(const at::Tensor& tensor, const std::vector<at::Tensor>* others) {
  const c10::TensorImpl* const key = tensor.unsafeGetTensorImpl();
  const bool made = made_.count(key) != 0;
  const bool may_spoil = !made || mixed_.count(key) != 0;
  const std::optional<at::Tensor> view = view_of_guarded(tensor);
  at::Tensor inner = view ? *view : made ? tensor : guarded_samples(tensor);
  bool broadcast = false;
  for (size_t i = 0; others && i < others->size(); ++i) {
    const at::Tensor& other = (*others)[i];
    if (other.is_same(tensor) || !grows(tensor, other)) continue;
    inner = guarded_as(inner, other);
    broadcast = true;
  }
  return may_spoil && !view && !broadcast ? guarded_as(inner, inner) : inner;
}

const BranchGuard::MixedView* BranchGuard::find_view(const at::Tensor& tensor) const {
  for (const BranchGuard* guard = this; guard; guard = guard->enclosing_) {
    const auto found = guard->views_.find(tensor.unsafeGetTensorImpl());
    if (found == guard->views_.end()) continue;
    const MixedView& view = found->second;
    return form_of(tensor) == view.form && form_of(view.of) == view.form_of ? &view : nullptr;
  }
  return nullptr;
}

/// The mask knows the tensor that was viewed by its sizes; a view, such as a transposed one, may have others. Nothing
/// where it does not know that one either. A script may view views as often as it likes, so this is a loop.
std::optional<at::Tensor> BranchGuard::view_of_guarded(const at::Tensor& tensor) {
  std::vector<at::Tensor> views;  // the last one first
  at::Tensor inner = tensor;
  while (const MixedView* const view = find_view(inner)) {
    const GuardedElements& known = guarded_elements_[{inner.unsafeGetTensorImpl(), nullptr}];
    const bool is_known = known.inner.defined() && known.version == version_of(inner);
    if (!is_known) views.push_back(inner);
    inner = is_known ? known.inner : view->of;
    if (is_known) break;
    if (find_view(inner)) continue;
    for (const at::Tensor& mask : taken_elements())
      if (!elements::over(mask, inner.sizes())) return std::nullopt;
    inner = guarded_elements(inner, nullptr);
    break;
  }
  if (inner.is_same(tensor)) return std::nullopt;
  const Suspended outside(enclosing_);
  for (; !views.empty(); views.pop_back()) {
    const at::Tensor& viewed = views.back();
    const MixedView& view = *find_view(viewed);
    torch::jit::Stack stack = view.arguments;
    stack[view.taken_from] = inner;
    call(view.op, stack);
    inner = stack[0].isTensorList() ? stack[0].toTensorVector().at(view.result) : stack.at(view.result).toTensor();
    guarded_elements_[{viewed.unsafeGetTensorImpl(), nullptr}] = {viewed, {}, inner, version_of(viewed)};
    made_.emplace(inner.unsafeGetTensorImpl(), inner);
  }
  return inner;
}

at::Tensor BranchGuard::guarded_as(const at::Tensor& tensor, const at::Tensor& like) {
  GuardedElements& known = guarded_elements_[{tensor.unsafeGetTensorImpl(), like.unsafeGetTensorImpl()}];
  if (known.inner.defined() && known.version == version_of(tensor)) return known.inner;
  const Suspended outside(enclosing_);
  at::Tensor inner = tensor;
  for (const at::Tensor& mask : taken_elements()) {
    if (tensor.layout() != c10::kStrided || tensor.device() != mask.device()) continue;
    inner = run("triage::guard_grad", {inner, inner.is_same(tensor) ? like : inner, mask}, "elements");
  }
  known = {tensor, like, inner, version_of(tensor)};
  made_.emplace(inner.unsafeGetTensorImpl(), inner);
  return inner;
}

void BranchGuard::guard_arguments(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  if (!c10::GradMode::is_enabled()) return;
  if (is_only_branch()) {
    if (enclosing_) enclosing_->guard_arguments(op, stack);
    return;
  }
  const auto& arguments = op.schema().arguments();
  const size_t first = stack.size() - arguments.size();
  std::vector<at::Tensor> others;
  if (selects_elements_ && operators::semantics_of(op).sizes == ResultSizes::broadcast)
    for (const c10::IValue& argument : arguments_of(op, stack))
      for_each_tensor(argument, [&](const at::Tensor& tensor) { others.push_back(tensor); });
  const auto guard = [&](const at::Tensor& tensor, bool views) {
    if (!tensor.defined() || !may_require_grad(tensor)) return tensor;
    if (!selects_elements_) return guarded(tensor);
    // The branch may write to a view of what it made. What reads the view is guarded.
    if (views && made_.count(tensor.unsafeGetTensorImpl())) return tensor;
    if (!is_product(op)) return guarded_elements(tensor, &others);
    return made_.count(tensor.unsafeGetTensorImpl()) ? tensor : guarded_samples(tensor);
  };
  for (size_t i = 0; i < arguments.size(); ++i) {
    c10::IValue& value = stack[first + i];
    if (is_written(arguments[i])) continue;  // what is written is meant itself
    const bool views = arguments[i].alias_info() != nullptr;
    if (value.isTensor()) {
      value = guard(value.toTensor(), views);
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> items = value.toTensorVector();
      for (at::Tensor& item : items) item = guard(item, views);
      value = items;
    }
  }
}

void BranchGuard::note_views(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                             const torch::jit::Stack& stack) {
  const auto& declared = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!declared[i].alias_info() || is_written(declared[i]) || !arguments[i].isTensor()) continue;
    const at::Tensor& of = arguments[i].toTensor();
    if (!of.defined() || !mixed_.count(of.unsafeGetTensorImpl())) continue;
    const auto note = [&](const at::Tensor& result, size_t at) {
      if (result.defined() && !result.is_same(of) && may_require_grad(result))
        views_.try_emplace(result.unsafeGetTensorImpl(),
                           MixedView{of, form_of(result), form_of(of), op, arguments, i, at});
    };
    const size_t first = stack.size() - op.schema().returns().size();
    for (size_t at = first; at < stack.size(); ++at) {
      if (stack[at].isTensor()) {
        note(stack[at].toTensor(), at - first);
      } else if (stack[at].isTensorList()) {
        const std::vector<at::Tensor> tensors = stack[at].toTensorVector();
        for (size_t item = 0; item < tensors.size(); ++item) note(tensors[item], item);
      }
    }
  }
}

void BranchGuard::note_results(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                               const torch::jit::Stack& stack) {
  if (is_only_branch()) {
    if (enclosing_) enclosing_->note_results(op, arguments, stack);
    return;
  }
  if (selects_elements_ && c10::GradMode::is_enabled()) note_views(op, arguments, stack);
  const bool mixes = selects_elements_ && !keeps_elements(op);
  const auto note = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !may_require_grad(tensor)) return;
    made_.emplace(tensor.unsafeGetTensorImpl(), tensor);
    if (mixes) mixed_.insert(tensor.unsafeGetTensorImpl());
  };
  for (size_t i = stack.size() - op.schema().returns().size(); i < stack.size(); ++i) {
    if (stack[i].isTensor()) {
      note(stack[i].toTensor());
    } else if (stack[i].isTensorList()) {
      for (const at::Tensor& tensor : stack[i].toTensorVector()) note(tensor);
    }
  }
}

namespace {

const void* memory_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? static_cast<const void*>(tensor.storage().unsafeGetStorageImpl())
                              : tensor.unsafeGetTensorImpl();
}

}  // namespace

bool BranchGuard::made_storage(const at::Tensor& tensor) const { return storages_.count(memory_of(tensor)) != 0; }

bool BranchGuard::is_from_outside(const at::Tensor& tensor) const {
  for (const BranchGuard* guard = this; guard && guard->selects(); guard = guard->enclosing_) {
    if (guard->made_storage(tensor)) return false;
    if (guard->runs_for_all()) return true;
  }
  return false;
}

void BranchGuard::refuse_change(const at::Tensor& tensor, const std::string& change) {
  if (context.branch && context.branch->is_from_outside(tensor))
    throw PolicyError(change + " changes a tensor from outside of " +
                      branch_text(context.branch->selection_.depth > 0) +
                      ": that branch runs for every sample. Do it before or after the " +
                      (context.branch->selection_.depth > 0 ? "`if`." : "branches."));
}

bool BranchGuard::chooses_per_sample() noexcept {
  for (const BranchGuard* guard = context.branch; guard && guard->selection_.depth > 0; guard = guard->enclosing_)
    if (guard->natural_ && guard->per_sample_) return true;
  return false;
}

void BranchGuard::refuse_writes(const c10::OperatorHandle& op, const torch::jit::Stack& stack) const {
  const auto& arguments = op.schema().arguments();
  const size_t first = stack.size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!is_written(arguments[i])) continue;
    for_each_tensor(stack[first + i], [&](const at::Tensor& written) {
      if (!is_from_outside(written)) return;
      throw PolicyError("`" + op.schema().name() + "` writes in place to a tensor from outside of " +
                        branch_text(selection_.depth > 0) + ": that branch runs for every sample. " +
                        (selection_.depth > 0 ? "Assign the new value to a variable instead, as in `z = z + 1`"
                                              : "Return the new value instead, as in `return z + 1`") +
                        ", or write to a copy: x:clone().");
    });
  }
}

void BranchGuard::note_storages(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                                const torch::jit::Stack& stack) {
  const auto& returns = op.schema().returns();
  const size_t first = stack.size() - returns.size();
  for (size_t i = 0; i < returns.size(); ++i) {
    if (returns[i].alias_info()) continue;
    for_each_tensor(stack[first + i], [&](const at::Tensor& result) {
      bool given = false;
      for (const c10::IValue& argument : arguments)
        for_each_tensor(argument, [&](const at::Tensor& tensor) { given |= memory_of(tensor) == memory_of(result); });
      if (!given) storages_.insert(memory_of(result));
    });
  }
}

}  // namespace triage::capture
