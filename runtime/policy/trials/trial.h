#pragma once
#include "runtime/capture/compiled.h"
#include "runtime/policy/trials/form.h"

#include <triage/front_end.h>
#include <triage/runtime.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace triage::policy {

/// How inputs look: their dtypes and sizes.
using Kind = std::vector<capture::InputShape>;

/// The first calls of a new version. Each is answered by the version before it where the new one fails, overruns, or
/// gives another form than that version would. Thread-safe.
class Trial {
 public:
  /// What is known before the first call.
  struct TrialBaseline {
    std::vector<std::pair<Kind, Form>> forms;        // what the version before gives for inputs of exactly these sizes
    std::vector<capture::Compiled::Answered> shown;  // what it gave in calls: for what it cannot be asked
    OpenSizes open;                                  // sizes of its outputs that depend on values
    std::vector<Kind> untried;                       // kinds in use that the new version could not be tried on
    std::string reason;                              // why, of the first
    std::optional<std::chrono::nanoseconds> time_before;  // that a call of the version before takes
  };

  using Clock = std::chrono::steady_clock;
  struct Length {
    size_t calls = 0;
    std::chrono::nanoseconds time{0};  // from the first call on
  };

  /// It compares answers until `calls` calls were answered, and one of each kind that was not tried; at most for 100
  /// times `calls`. It is on until then, and for `time` at least.
  void begin(TrialBaseline known, Length length);
  /// With what is known already.
  void begin_again(Length length);
  bool on() const noexcept { return on_.load(std::memory_order_acquire); }
  /// Whether answers are still compared; where not, it is over, or waits for its time.
  bool compares() const noexcept { return comparing_.load(std::memory_order_acquire); }
  /// ... and a call at this moment changes nothing: asked without a lock.
  bool only_waits(Clock::time_point now) const noexcept {
    return on() && !compares() && now < ends_.load(std::memory_order_relaxed);
  }
  /// Whether every kind in use has been answered, here or before the version went live.
  bool tried() const;
  /// Why one of them could not be tried; empty where all were.
  std::string reason() const;

  std::optional<Form> expected(at::ArrayRef<at::Tensor> inputs) const;
  /// ... as its other calls tell: with the sizes that cannot be told from them.
  std::optional<std::pair<Form, OpenSizes>> expected_of_kind(at::ArrayRef<at::Tensor> inputs) const;
  std::vector<capture::Compiled::Answered> shown() const;
  void expect(at::ArrayRef<at::Tensor> inputs, Form form);
  OpenSizes open() const;
  void add_open(const Form& one, const Form& other);
  /// Without a lock, as each call on trial asks.
  std::optional<std::chrono::nanoseconds> time_before() const noexcept;

  /// A call gave up while another one was running the script; taken by the next that comes to its end.
  void note_wait(std::string message);
  std::optional<std::string> take_wait();

  enum class Progress : uint8_t { going_on, tried, over };
  /// A call with these inputs was answered. `tried`: by it the last kind; `over`: it was the last call.
  Progress pass(at::ArrayRef<at::Tensor> inputs, Clock::time_point now = Clock::now());
  /// A call of a candidate was: its calls end the trial whatever the time, as it has rules of its own.
  void pass_beside(at::ArrayRef<at::Tensor> inputs);

 private:
  Progress count(at::ArrayRef<at::Tensor> inputs, bool is_time_up);

  std::atomic<bool> on_{false}, comparing_{false};
  std::atomic<std::chrono::nanoseconds> time_before_{std::chrono::nanoseconds(-1)};  // negative: not known
  std::atomic<bool> has_waited_{false};
  std::atomic<Clock::time_point> ends_{Clock::time_point::min()};  // not before
  mutable std::mutex mutex_;
  TrialBaseline known_;
  std::chrono::nanoseconds time_{0};
  bool has_begun_ = false;  // a call of the live version was answered
  size_t calls_left_ = 0, most_left_ = 0;
  std::optional<std::string> waited_;
};

/// As the host wants it for versions that go live.
Trial::Length trial_length(const RuntimeOptions& options);

using Moment = std::optional<std::chrono::steady_clock::time_point>;
/// When a version must have answered that another one stands in for. Of a deadline so much is left that the stand-in
/// can still meet it, where it can at all: it takes `time_before`. Without a deadline, a multiple of that and of the
/// budget.
Moment trial_deadline(const Moment& deadline, std::optional<std::chrono::nanoseconds> time_before,
                      const Limits& limits);
/// A late answer is better than none: the stand-in gets as much time as the call had, if it must.
Moment deadline_of_stand_in(const Moment& deadline, std::chrono::steady_clock::time_point begin);

}  // namespace triage::policy
