#include "runtime/capture/tensors/host_memory.h"

#include "runtime/backends/output_aliases.h"
#include "runtime/capture/context.h"
#include "runtime/capture/replay/trace_replayer.h"
#include "runtime/capture/rules/arguments.h"
#include "runtime/capture/rules/rules.h"
#include "runtime/memory/overlap.h"

#include <triage/error.h>
#include <triage/graph.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace triage::capture {
namespace {

bool has_memory(const at::Tensor& tensor) { return tensor.defined() && tensor.has_storage(); }

}  // namespace

void HostMemory::add(const at::Tensor& tensor, const std::string& name) {
  if (!has_memory(tensor)) return;
  if (std::max(storages_.size(), tensors_.size()) >= most_) forget_freed();
  storages_.try_emplace(tensor.storage().unsafeGetStorageImpl(),
                        KnownStorage{tensor.storage().getWeakStorageImpl(), name});
  tensors_.try_emplace(tensor.unsafeGetTensorImpl(), KnownTensor{WeakTensor(tensor.getIntrusivePtr()), name});
}

void HostMemory::follow() {
  std::vector<std::pair<at::Tensor, std::string>> now;
  for (const auto& [key, known] : tensors_)
    if (auto tensor = known.tensor.lock(); tensor.defined())
      now.emplace_back(at::Tensor(std::move(tensor)), known.name);
  for (const auto& [tensor, name] : now) add(tensor, name);
}

void HostMemory::take_over(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs, bool kept) {
  const auto is_input = [&](const at::Tensor& output) {
    return std::any_of(inputs.begin(), inputs.end(), [&](const at::Tensor& input) { return output.is_same(input); });
  };
  if (kept)
    copy_lent(outputs, [&](const at::Tensor& output) { return !is_input(output); });
  else
    separate_from_inputs(inputs, outputs);
  for (const at::Tensor& output : outputs) add(output);
}

std::string HostMemory::name_of(const at::Tensor& tensor) const {
  const auto found = storages_.find(tensor.storage().unsafeGetStorageImpl());
  return found == storages_.end() ? "" : found->second.name;
}

bool HostMemory::has(const at::Tensor& tensor) const {
  return has_memory(tensor) && storages_.count(tensor.storage().unsafeGetStorageImpl()) != 0;
}

void HostMemory::forget_freed() {
  for (auto entry = storages_.begin(); entry != storages_.end();)
    entry = entry->second.storage.expired() ? storages_.erase(entry) : std::next(entry);
  for (auto entry = tensors_.begin(); entry != tensors_.end();)
    entry = entry->second.tensor.expired() ? tensors_.erase(entry) : std::next(entry);
  most_ = std::max<size_t>(64, 2 * std::max(storages_.size(), tensors_.size()));
}

ProtectInputs::ProtectInputs(at::ArrayRef<at::Tensor> inputs, HostMemory* kept)
    : inputs_(inputs.begin(), inputs.end()), kept_(kept), previous_(context.protect_inputs) {
  if (kept_)
    for (const at::Tensor& input : inputs_) kept_->add(input);
  context.protect_inputs = this;
}

ProtectInputs::~ProtectInputs() { context.protect_inputs = previous_; }

bool ProtectInputs::active() noexcept { return context.protect_inputs != nullptr; }

void ProtectInputs::add(const at::Tensor& tensor) {
  if (!context.protect_inputs || !has_memory(tensor)) return;
  context.protect_inputs->inputs_.push_back(tensor);
  context.protect_inputs->followed_ = false;
  if (context.protect_inputs->kept_) context.protect_inputs->kept_->add(tensor);
}

bool ProtectInputs::is_of_call(const at::Tensor& tensor) const { return shares_memory(tensor, inputs_); }

bool ProtectInputs::is_kept(const at::Tensor& tensor) {
  if (!kept_) return false;
  if (!kept_->has(tensor) && !std::exchange(followed_, true)) kept_->follow();
  return kept_->has(tensor);
}

bool ProtectInputs::covers(const at::Tensor& tensor) {
  ProtectInputs* const now = context.protect_inputs;
  return now && has_memory(tensor) && (now->is_of_call(tensor) || now->is_kept(tensor));
}

void ProtectInputs::refuse_change(const at::Tensor& tensor, const std::string& what) {
  end_segment();  // a view that comes later shows only then what it is a view of
  materialize(tensor);
  if (!covers(tensor)) return;
  if (const HostMemory* kept = context.protect_inputs->kept_)
    if (const std::string name = kept->name_of(tensor); !name.empty())
      throw Error(what + " would write to `" + name +
                  "` in place, a tensor that the host gives to policies. Write to a copy (" + name +
                  ":clone()), or use the form that returns its result.");
  if (context.protect_inputs->is_of_call(tensor))
    throw Error(what +
                " would write to an input of the policy in place; inputs belong to the host. "
                "Write to a copy (x:clone()), or use the form that returns its result.");
  throw Error(what +
              " would write to an input or output of an earlier call in place; both belong to the host. "
              "Keep a copy (x:clone()), or use the form that returns its result.");
}

void ProtectInputs::check(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (!graph::writes(op)) return;
  const auto& arguments = op.schema().arguments();
  const size_t first = stack.size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!is_written(arguments[i]) || !stack[first + i].isTensor()) continue;
    const at::Tensor& target = stack[first + i].toTensor();
    if (covers(target)) refuse_change(target, "`" + base_name(op) + "`");
  }
}

}  // namespace triage::capture
