#include "runtime/policy/trial.h"

#include <algorithm>

namespace triage::policy {
namespace {

/// dtypes and ranks count, sizes do not.
bool same_kind(const Kind& kind, at::ArrayRef<at::Tensor> inputs) {
  return std::equal(kind.begin(), kind.end(), inputs.begin(), inputs.end(), [](const auto& shape, const auto& input) {
    return shape.dtype == input.scalar_type() && static_cast<int64_t>(shape.sizes.size()) == input.dim();
  });
}

bool same_sizes(const Kind& kind, at::ArrayRef<at::Tensor> inputs) {
  return std::equal(kind.begin(), kind.end(), inputs.begin(), inputs.end(), [](const auto& shape, const auto& input) {
    return shape.dtype == input.scalar_type() && input.sizes() == shape.sizes && shape.device == input.device();
  });
}

}  // namespace

void Trial::begin(Known known, size_t calls) {
  const std::lock_guard lock(mutex_);
  known_ = std::move(known);
  calls_left_ = calls;
  most_left_ = 100 * calls;
  on_.store(calls > 0, std::memory_order_release);
}

bool Trial::tried() const {
  const std::lock_guard lock(mutex_);
  return known_.untried.empty();
}

std::string Trial::reason() const {
  const std::lock_guard lock(mutex_);
  return known_.reasons.empty() ? "" : known_.reasons.front();
}

std::optional<std::chrono::nanoseconds> Trial::time_before() const {
  const std::lock_guard lock(mutex_);
  return known_.time_before;
}

std::optional<Form> Trial::expected(at::ArrayRef<at::Tensor> inputs) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [kind, form] : known_.forms)
    if (same_sizes(kind, inputs)) return form;
  return std::nullopt;
}

std::optional<Form> Trial::expected_of_kind(at::ArrayRef<at::Tensor> inputs) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [kind, form] : known_.forms)
    if (same_kind(kind, inputs)) return form;
  return std::nullopt;
}

void Trial::expect(at::ArrayRef<at::Tensor> inputs, Form form) {
  constexpr size_t most = 64;
  const std::lock_guard lock(mutex_);
  for (auto& [kind, known] : known_.forms)
    if (same_sizes(kind, inputs)) {
      known = std::move(form);
      return;
    }
  if (known_.forms.size() >= most) return;
  known_.forms.emplace_back(capture::shape_of(inputs), std::move(form));
}

OpenSizes Trial::open() const {
  const std::lock_guard lock(mutex_);
  return known_.open;
}

void Trial::add_open(const Form& one, const Form& other) {
  const std::lock_guard lock(mutex_);
  add_open_sizes(known_.open, one, other);
}

Trial::Progress Trial::pass(at::ArrayRef<at::Tensor> inputs) {
  const std::lock_guard lock(mutex_);
  const size_t untried =
      std::erase_if(known_.untried, [&](const Kind& kind) { return same_kind(kind, inputs); });
  if (calls_left_ > 0) --calls_left_;
  if (most_left_ > 0) --most_left_;
  const bool over = most_left_ == 0 || (calls_left_ == 0 && known_.untried.empty());
  if (over && on_.exchange(false, std::memory_order_acq_rel)) {
    known_.forms.clear();
    return Progress::over;
  }
  return untried > 0 && known_.untried.empty() ? Progress::tried : Progress::going_on;
}

}  // namespace triage::policy
