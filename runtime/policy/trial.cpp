#include "runtime/policy/trial.h"

#include <algorithm>
#include <utility>

namespace triage::policy {
namespace {

bool same_kind(const std::vector<capture::InputShape>& kind, at::ArrayRef<at::Tensor> inputs) {
  return std::equal(kind.begin(), kind.end(), inputs.begin(), inputs.end(), [](const auto& shape, const auto& input) {
    return shape.dtype == input.scalar_type() && static_cast<int64_t>(shape.sizes.size()) == input.dim();
  });
}

}  // namespace

void Trial::add(std::vector<capture::InputShape> kind) {
  const std::lock_guard lock(mutex_);
  kinds_.push_back(std::move(kind));
  on_.store(true, std::memory_order_release);
}

bool Trial::covers(at::ArrayRef<at::Tensor> inputs) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(kinds_.begin(), kinds_.end(), [&](const auto& kind) { return same_kind(kind, inputs); });
}

std::vector<std::vector<capture::InputShape>> Trial::kinds() const {
  const std::lock_guard lock(mutex_);
  return kinds_;
}

bool Trial::pass(at::ArrayRef<at::Tensor> inputs) {
  const std::lock_guard lock(mutex_);
  std::erase_if(kinds_, [&](const auto& kind) { return same_kind(kind, inputs); });
  return kinds_.empty() && on_.exchange(false, std::memory_order_acq_rel);
}

}  // namespace triage::policy
