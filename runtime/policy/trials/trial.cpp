#include "runtime/policy/trials/trial.h"

#include <algorithm>
#include <utility>

#include "runtime/backends/deadline.h"

namespace triage::policy {
namespace {

/// dtypes and ranks count, sizes do not.
bool same_kind(const Kind& kind, at::ArrayRef<at::Tensor> inputs) {
  return std::equal(kind.begin(), kind.end(), inputs.begin(), inputs.end(), [](const auto& shape, const auto& input) {
    return shape.dtype == input.scalar_type() && static_cast<int64_t>(shape.sizes.size()) == input.dim();
  });
}

bool same_but_rows(const Kind& kind, at::ArrayRef<at::Tensor> inputs) {
  return std::equal(kind.begin(), kind.end(), inputs.begin(), inputs.end(), [](const auto& shape, const auto& input) {
    return capture::same_but_rows(shape.sizes, input.sizes());
  });
}

bool same_sizes(const Kind& kind, at::ArrayRef<at::Tensor> inputs) {
  return std::equal(kind.begin(), kind.end(), inputs.begin(), inputs.end(), [](const auto& shape, const auto& input) {
    return shape.dtype == input.scalar_type() && input.sizes() == shape.sizes && shape.device == input.device();
  });
}

}  // namespace

Trial::Length trial_length(const RuntimeOptions& options) {
  if (options.trial_seconds <= 0) return {options.trial_calls};
  return {options.trial_calls, Deadline::span(options.trial_seconds).value_or(std::chrono::nanoseconds::max())};
}

void Trial::begin(TrialBaseline known, Length length) {
  {
    const std::lock_guard lock(mutex_);
    known_ = std::move(known);
    time_before_.store(known_.time_before.value_or(std::chrono::nanoseconds(-1)), std::memory_order_relaxed);
  }
  begin_again(length);
}

void Trial::begin_again(Length length) {
  const std::lock_guard lock(mutex_);
  calls_left_ = length.calls;
  most_left_ = length.calls > SIZE_MAX / 100 ? SIZE_MAX : 100 * length.calls;
  time_ = length.time;
  has_begun_ = false;
  comparing_.store(length.calls > 0, std::memory_order_release);
  on_.store(length.calls > 0, std::memory_order_release);
}

bool Trial::tried() const {
  const std::lock_guard lock(mutex_);
  return known_.untried.empty();
}

std::string Trial::reason() const {
  const std::lock_guard lock(mutex_);
  return known_.reason;
}

std::optional<std::chrono::nanoseconds> Trial::time_before() const noexcept {
  const std::chrono::nanoseconds time = time_before_.load(std::memory_order_relaxed);
  return time.count() < 0 ? std::nullopt : std::optional(time);
}

std::optional<Form> Trial::expected(at::ArrayRef<at::Tensor> inputs) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [kind, form] : known_.forms)
    if (same_sizes(kind, inputs)) return form;
  return std::nullopt;
}

std::optional<std::pair<Form, OpenSizes>> Trial::expected_of_kind(at::ArrayRef<at::Tensor> inputs) const {
  const std::lock_guard lock(mutex_);
  const auto find = [&](bool alike) {
    return std::find_if(known_.shown.begin(), known_.shown.end(), [&](const auto& one) {
      return same_kind(one.inputs, inputs) && (!alike || same_but_rows(one.inputs, inputs));
    });
  };
  auto shown = find(/*alike=*/true);
  const bool alike = shown != known_.shown.end();
  if (!alike) shown = find(/*alike=*/false);
  if (shown == known_.shown.end()) return std::nullopt;
  const auto with_rows = std::find_if(inputs.begin(), inputs.end(), [](const auto& input) { return input.dim() > 0; });
  const int64_t batch = with_rows == inputs.end() ? -1 : with_rows->size(0);
  Form form = form_of(shown->outputs, shown->flags_outputs);
  OpenSizes open(shown->other_sizes.begin(), shown->other_sizes.end());
  const bool ambiguous = std::any_of(shown->inputs.begin(), shown->inputs.end(), [&](const auto& input) {
    return std::count(input.sizes.begin() + !input.sizes.empty(), input.sizes.end(), shown->batch()) > 0;
  });
  for (size_t i = 0; i < form.size(); ++i)
    for (size_t dim = 0; dim < form[i].sizes.size(); ++dim) {
      int64_t& size = form[i].sizes[dim];
      const bool is_batch = size == shown->batch();
      // The first size may be how many samples were chosen; another is that of the batch by chance.
      const bool may_differ = dim == 0 ? !is_batch || ambiguous : is_batch;
      if (!alike || (may_differ && (!is_batch || size != batch))) open.emplace(i, dim);
      size = shown->size_for(batch, size);
    }
  return std::pair(std::move(form), std::move(open));
}

std::vector<capture::Compiled::Answered> Trial::shown() const {
  const std::lock_guard lock(mutex_);
  return known_.shown;
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

void Trial::note_wait(std::string message) {
  const std::lock_guard lock(mutex_);
  waited_ = std::move(message);
  has_waited_.store(true, std::memory_order_release);
}

std::optional<std::string> Trial::take_wait() {
  if (!has_waited_.load(std::memory_order_acquire)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  has_waited_.store(false, std::memory_order_relaxed);
  return std::exchange(waited_, std::nullopt);
}

OpenSizes Trial::open() const {
  const std::lock_guard lock(mutex_);
  return known_.open;
}

void Trial::add_open(const Form& one, const Form& other) {
  const std::lock_guard lock(mutex_);
  add_open_sizes(known_.open, one, other);
}

Trial::Progress Trial::pass(at::ArrayRef<at::Tensor> inputs, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(has_begun_, true)) {
    const bool ends = time_ <= Clock::time_point::max() - now;
    ends_.store(ends ? now + time_ : Clock::time_point::max(), std::memory_order_relaxed);
  }
  return count(inputs, now >= ends_.load(std::memory_order_relaxed));
}

void Trial::pass_beside(at::ArrayRef<at::Tensor> inputs) {
  const std::lock_guard lock(mutex_);
  count(inputs, /*is_time_up=*/true);
}

/// With mutex_.
Trial::Progress Trial::count(at::ArrayRef<at::Tensor> inputs, bool is_time_up) {
  const size_t untried = std::erase_if(known_.untried, [&](const Kind& kind) { return same_kind(kind, inputs); });
  if (calls_left_ > 0) --calls_left_;
  if (most_left_ > 0) --most_left_;
  const bool is_compared = most_left_ == 0 || (calls_left_ == 0 && known_.untried.empty());
  if (is_compared) comparing_.store(false, std::memory_order_release);
  if (is_compared && is_time_up && on_.exchange(false, std::memory_order_acq_rel)) {
    known_.forms.clear();
    return Progress::over;
  }
  return untried > 0 && known_.untried.empty() ? Progress::tried : Progress::going_on;
}

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

}  // namespace

Moment trial_deadline(const Moment& deadline, std::optional<nanoseconds> time_before, const Limits& limits) {
  const auto now = Clock::now();
  if (!deadline) {
    const std::optional<nanoseconds> budget = Deadline::span(limits.seconds);
    if (!budget) return std::nullopt;
    return now + (time_before ? std::max(*budget, 20 * *time_before) : 10 * *budget);
  }
  const auto left = std::chrono::duration_cast<nanoseconds>(*deadline - now);
  if (!time_before) return now + left / 2;
  const auto needed = *time_before * 3 / 2 + std::chrono::microseconds(200);
  return needed > left / 2 ? *deadline : *deadline - needed;
}

Moment deadline_of_stand_in(const Moment& deadline, Clock::time_point begin) {
  if (!deadline) return std::nullopt;
  return std::max(*deadline, Clock::now() + (*deadline - begin));
}

}  // namespace triage::policy
