#include "runtime/capture/sizes/marks.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>

#include "runtime/messages/fork_safe_mutex.h"

namespace triage::capture {
namespace {

using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

struct Marked {
  Weak tensor;
  std::vector<DimensionMark> marks;
};

struct MarkRegistry {
  messages::ForkSafeMutex mutex;
  std::unordered_map<const c10::TensorImpl*, Marked> marked;
  std::atomic<bool> any{false};  // most programs mark nothing
};

MarkRegistry& registry() {
  static auto& registry = *new MarkRegistry;
  return registry;
}

}  // namespace

void set_mark(const at::Tensor& tensor, DimensionMark mark) {
  MarkRegistry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.marked, [](const auto& entry) { return entry.second.tensor.expired(); });
  auto [found, fresh] =
      all.marked.try_emplace(tensor.unsafeGetTensorImpl(), Marked{Weak(tensor.getIntrusivePtr()), {}});
  std::erase_if(found->second.marks, [&](const DimensionMark& known) { return known.dim == mark.dim; });
  found->second.marks.push_back(mark);
  all.any.store(true, std::memory_order_release);
}

std::vector<DimensionMark> marks_of(const at::Tensor& tensor) {
  MarkRegistry& all = registry();
  if (!all.any.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(all.mutex);
  const auto found = all.marked.find(tensor.unsafeGetTensorImpl());
  if (found == all.marked.end() || found->second.tensor.expired()) return {};
  return found->second.marks;
}

void forget_marks() {
  MarkRegistry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.marked.clear();
  all.any.store(false, std::memory_order_release);
}

}  // namespace triage::capture
