// Which tensors hold flags while no graph is recorded.
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/rules/arguments.h"
#include "runtime/memory/overlap.h"

namespace triage::capture {

void FlagsTracker::observe(const c10::OperatorHandle& op, bool moved, const torch::jit::Stack& results) {
  size_t count = op.schema().returns().size();
  size_t first = results.size() - count;
  for (size_t i = 0; i < count; ++i) {
    if (!results[first + i].isTensor() || !(moved || graph::returns_flags(op, i))) continue;
    const at::Tensor& tensor = results[first + i].toTensor();
    if (tensor.defined() && tensor.dim() == 2) add(tensor);
  }
}

void FlagsTracker::note_storages(const std::vector<c10::IValue>& arguments, const torch::jit::Stack& results,
                                 size_t count) {
  for (size_t i = results.size() - count; i < results.size(); ++i) {
    for_each_tensor(results[i], [&](const at::Tensor& result) {
      if (!result.has_storage()) return;
      bool given = false;
      for_each_tensor(arguments, [&](const at::Tensor& a) { given |= share_memory(a, result); });
      if (!given) storages_.insert(result.storage().unsafeGetStorageImpl());
    });
  }
}

bool FlagsTracker::made(const at::Tensor& tensor) const {
  return tensor.has_storage() && storages_.count(tensor.storage().unsafeGetStorageImpl()) != 0;
}

void FlagsTracker::add(const at::Tensor& flags) {
  flags_.emplace(flags.unsafeGetTensorImpl(), TensorIdentity(flags));
  // A tracker may live long, as at a prompt: what nobody else holds is let go, now and then.
  const size_t count = flags_.size();
  constexpr size_t many = 1024;
  if (count >= many && (count & (count - 1)) == 0)
    std::erase_if(flags_, [](const auto& known) { return !known.second.tensor().defined(); });
}

}  // namespace triage::capture
