#include "runtime/policy/core/latency_gate.h"

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "runtime/capture/recording/recorder.h"
#include "runtime/policy/core/rehearsal.h"
#include "runtime/policy/loading.h"
#include "runtime/policy/state/state_of_call.h"

namespace triage::policy {
namespace {

using capture::SyntheticValues;
using Clock = std::chrono::steady_clock;
using Time = CallTimes::Time;

/// Where measuring has taken this long, one round for each kind is enough, unless it looks slow.
constexpr Time long_enough = std::chrono::seconds(2);

/// A GPU answers before it has computed.
void wait_for(const Kind& kind) {
  for (const auto& input : kind)
    if (input.device.type() != c10::kCPU && input.device.type() != c10::kMeta) {
      c10::impl::VirtualGuardImpl(input.device.type()).getStream(input.device).synchronize();
      return;
    }
}

void check_not_cancelled() {
  if (Loading::is_cancelled()) throw LimitError("the reload was cancelled while triage timed the new version");
}

/// One version, ready to be called with inputs that it only reads.
class TimedVersion {
 public:
  TimedVersion(const TimedSide& side, const LatencyGate& gate, const Kind& kind, const std::vector<at::Tensor>& inputs)
      : side_(side), gate_(gate), kind_(kind), inputs_(inputs), all_(inputs) {
    const Signature& signature = side.version.signature;
    for (at::Tensor& value : with_first_state(signature, inputs_, param_tensors(signature, gate.params)))
      all_.push_back(std::move(value));
  }

  /// The time of a call; nothing where these inputs tell none.
  std::optional<Time> call() const {
    wait_for(kind_);
    const auto begin = Clock::now();
    try {
      if (!by_graph() && !run_alone(side_.alone, inputs_, gate_.params)) return std::nullopt;
      wait_for(kind_);
    } catch (const std::exception&) {  // of values that nobody sent
      check_not_cancelled();
      return std::nullopt;
    }
    return Clock::now() - begin;
  }

 private:
  bool by_graph() const {
    std::vector<at::Tensor> outputs;
    const OnSyntheticValues held(side_.version, gate_.limits);
    const capture::SyntheticInputs synthetic;  // no module of the host learns from these values
    return side_.version.compiled.run_graph(all_, outputs);
  }

  const TimedSide& side_;
  const LatencyGate& gate_;
  const Kind& kind_;
  const std::vector<at::Tensor>& inputs_;
  std::vector<at::Tensor> all_;
};

/// The calls of one reload.
class Measurement {
 public:
  explicit Measurement(const LatencyGate& gate) : gate_(gate) {}

  /// Of calls with usual values, or with rows of NaN and the like, which may take another way, where those are too
  /// slow. Nothing where one of both versions does not answer.
  std::optional<CallTimes> times_of(const Kind& kind) {
    const auto with = [&](SyntheticValues values) { return times_with(kind, values); };
    auto usual = with(SyntheticValues::ones);
    if (!usual) usual = with(SyntheticValues::zeros);
    if (!usual) usual = with(SyntheticValues::identity);
    if (!usual) gate_.on_untimed(kind);
    if (!usual || is_slow(*usual)) return usual;
    const auto mixed = spent_ < long_enough ? with(SyntheticValues::mixed) : std::nullopt;
    return mixed && is_slow(*mixed) ? mixed : usual;
  }
  bool is_slow(const CallTimes& times) const { return times.judge(gate_.ratio) == CallTimes::Verdict::slow; }

 private:
  std::optional<CallTimes> times_with(const Kind& kind, SyntheticValues values) {
    const std::vector<at::Tensor> inputs = inputs_of(kind, values);
    const TimedVersion before(gate_.before, gate_, kind, inputs), next(gate_.next, gate_, kind, inputs);
    CallTimes times;
    do {
      check_not_cancelled();
      const auto of_next = next.call(), of_before = before.call();
      if (!of_next || !of_before) return std::nullopt;
      times.note(*of_before, *of_next);
      spent_ += *of_before + *of_next;
    } while (goes_on(times));
    return times;
  }

  bool goes_on(const CallTimes& times) const {
    if (times.judge(gate_.ratio) != CallTimes::Verdict::undecided) return false;
    const bool looks_slow =
        static_cast<double>(times.next.count()) > gate_.ratio * static_cast<double>(times.before.count());
    return looks_slow || spent_ < long_enough;
  }

  const LatencyGate& gate_;
  Time spent_{0};
};

}  // namespace

void CallTimes::note(Time of_before, Time of_next) {
  before = std::min(before, of_before);
  next = std::min(next, of_next);
  spent += of_before + of_next;
  ++rounds;
}

CallTimes::Verdict CallTimes::judge(double ratio) const {
  constexpr int fewest = 2;
  constexpr Time very_long = std::chrono::seconds(1);
  if (rounds == 0) return Verdict::undecided;
  if (next <= floor) return Verdict::fast_enough;
  if (rounds < fewest) return Verdict::undecided;
  if (static_cast<double>(next.count()) <= ratio * static_cast<double>(before.count())) return Verdict::fast_enough;
  return rounds < most_rounds && spent < very_long ? Verdict::undecided : Verdict::slow;
}

std::optional<SlowKind> LatencyGate::find_slow(const std::vector<Kind>& kinds) const {
  Measurement measurement(*this);
  for (const Kind& kind : kinds)
    if (const auto times = measurement.times_of(kind); times && measurement.is_slow(*times))
      return SlowKind{kind, *times};
  return std::nullopt;
}

}  // namespace triage::policy
