#include "runtime/policy/calls/call.h"

#include <fmt/format.h>
#include <triage/error.h>

#include <algorithm>
#include <exception>

#include "runtime/backends/deadline.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/thread_stack.h"
#include "runtime/memory/overlap.h"
#include "runtime/messages/profiling/profiler_spans.h"
#include "runtime/operators/untrusted.h"
#include "runtime/policy/afterwards.h"
#include "runtime/policy/attribution/flagged.h"
#include "runtime/policy/calls/form_check.h"
#include "runtime/policy/calls/inputs.h"
#include "runtime/policy/calls/pass_through.h"
#include "runtime/policy/core/policy_core.h"
#include "runtime/policy/decisions/decisions.h"
#include "runtime/policy/loading.h"
#include "runtime/policy/releases/releases.h"
#include "runtime/random/sequence.h"

namespace triage::policy {
namespace {

/// An answer came too late, where the version before would have been in time.
bool overran(const Moment& deadline, std::chrono::steady_clock::time_point begin,
             std::optional<std::chrono::nanoseconds> time_before) {
  return deadline && time_before && *time_before < *deadline - begin && std::chrono::steady_clock::now() > *deadline;
}

/// The state that the signature names, then what it cannot take of `rest`. So a name may be there twice, in another
/// dtype or shape.
KeptState named(const Signature& signature, std::vector<at::Tensor> tensors, const KeptState& rest) {
  auto state = std::make_shared<StateTensors>();
  for (size_t i = 0; i < tensors.size(); ++i) state->emplace_back(signature.state[i].name, std::move(tensors[i]));
  if (rest)
    for (const auto& [name, tensor] : *rest)
      if (!takes(signature, name, tensor)) state->emplace_back(name, tensor);
  return state;
}

/// A call of its own: not one that it answered in place of another version, or was asked what it would have answered.
void note_answered(PolicyVersion& version) noexcept {
  if (!version.has_run.load(std::memory_order_relaxed)) version.has_run.store(true, std::memory_order_relaxed);
  if (version.failures_in_row.load(std::memory_order_relaxed) != 0)
    version.failures_in_row.store(0, std::memory_order_relaxed);
}

/// The ends of the clock stand for "never" and "long ago"; no difference to them fits.
bool has_odd_deadline(const RunOptions& options) { return options.deadline && !Deadline::is_plain(*options.deadline); }

RunOptions with_plain_deadline(RunOptions options) {
  options.deadline = Deadline::plain(*options.deadline);
  return options;
}

}  // namespace

std::vector<at::Tensor> run(PolicyCore& policy, at::ArrayRef<at::Tensor> inputs, const RunOptions& options) {
  if (has_odd_deadline(options)) [[unlikely]]
    return run(policy, inputs, with_plain_deadline(options));
  if (Loading::is_cancellable()) [[unlikely]] {
    const Loading::Cancellable no_reload(nullptr);
    return run(policy, inputs, options);
  }
  const messages::ProfilerSpan span([&] { return "policy " + policy.name(); });
  const Epochs::Reading reading(policy.line().epochs());
  return Call(policy, policy.line().lineup(), inputs, options).run();
}

void prepare(PolicyCore& policy, at::ArrayRef<at::Tensor> inputs, const RunOptions& options) {
  const Loading::Cancellable no_reload(nullptr);
  if (has_odd_deadline(options)) return prepare(policy, inputs, with_plain_deadline(options));
  const Epochs::Reading reading(policy.line().epochs());
  Call(policy, policy.line().lineup(), inputs, options).prepare();
}

Call::Call(PolicyCore& policy, const Lineup& lineup, at::ArrayRef<at::Tensor> inputs, const RunOptions& options)
    : policy_(policy), lineup_(lineup), inputs_(inputs), options_(options), asked_(&lineup) {
  replaceable_ = lineup.version->trial.on();
  if (const auto& log = policy.runtime().options().decisions) answer_.capsules = DecisionQueue::of(*log).capsules();
}

Call::~Call() {
  if (accounted_) return;
  turn_.reset();
  answer_.by = Answered::failed;
  account(*lineup_.version);
}

std::vector<at::Tensor> Call::run() {
  if (lineup_.beside) [[unlikely]] {
    run_beside();
  } else {
    answer();
    account(*lineup_.version);
  }
  return std::move(answer_.outputs);
}

void Call::answer() {
  try {
    admit();
    if (lineup_.has_state || asked_ != &lineup_) [[unlikely]]
      take_turn();
    ask();
  } catch (const std::exception& error) {
    answer_.note_failure(error);
    if (!stand_in(error)) throw;
  }
  if (replaceable_ || turn_) [[unlikely]]
    settle();
}

/// What it throws is the host's mistake: nothing stands in.
void Call::admit() {
  const PolicyVersion& live = *lineup_.version;
  check_inputs(live, inputs_, options_);
  policy_.use().note(options_);
  if (replaceable_ && !options_.params.empty()) override_params(live, lineup_.params, options_.params);
  admitted_ = true;
}

/// Another call with the same key has come to its end. A candidate and a call that only prepares use the state, and
/// keep none.
void Call::take_turn() {
  StateStore& state = policy_.state().store();
  if (asked_ == &lineup_ && !prepares_) {
    turn_.emplace(state, options_.state_key, options_.deadline, policy_.name());
    answer_.begin_with(turn_->state());
  } else if (prepares_ || !asked_->version->signature.state.empty()) {
    answer_.begin_with(state.look(options_.state_key));
  }
}

/// Where another version may have to answer, nothing is donated, and so much time is left that it can.
void Call::ask() {
  PolicyVersion& version = *asked_->version;
  if (!replaceable_) [[likely]] {
    VersionCall{version, inputs_, asked_->params, options_}.run(answer_);
  } else {
    asked_at_ = Clock::now();
    RunOptions mine = as_asked(version, options_);
    if (asked_->before)
      mine.deadline =
          trial_deadline(options_.deadline, version.trial.time_before(), policy_.runtime().options().limits);
    VersionCall{version, inputs_, asked_->params, mine}.run(answer_);
  }
  const bool gives_one_form = answer_.ran.form == CallForm::graph && !version.trial.compares();
  if (!gives_one_form) hold_to_form(*asked_, {version, inputs_, asked_->params, options_}, answer_);
  note_answered(version);
  answer_.by = asked_ == &lineup_ ? Answered::live : Answered::canary;
  if (answer_.violations && !prepares_) [[unlikely]]
    meet_violations();
}

/// Samples of outputs are not within their declared ranges. Their records say so already.
void Call::meet_violations() {
  const bool reverts = asked_->version->on_violation == OnViolation::revert;
  if (reverts && !answer_.violations->read()) return;
  count_violations();
  if (reverts) revert_for_violations();
}

/// Those that were read, for the version that answers.
void Call::count_violations() {
  if (prepares_ || !answer_.violations) return;
  const PolicyVersion& version = *answer_.version;
  bool any = false;
  for (const Violations::Output& output : answer_.violations->outputs)
    if (output.count > 0) {
      any = true;
      version.counters->violated(output.index, static_cast<uint64_t>(output.count));
    }
  if (any) afterwards(policy_.runtime().logger(), [&] { policy_.report_violations(version, *answer_.violations); });
}

/// The version before answers, and is live again, where it keeps to its own ranges; else the inputs are at fault, and the answer stays.
/// What a candidate promises and does not keep is a failure of it.
void Call::revert_for_violations() {
  const PolicyVersion& version = *asked_->version;
  const auto [message, where] = told_of(version, fmt::format(" has {} out of range, and on_violation = \"revert\"",
                                                             answer_.violations->text(version.signature)));
  const PolicyError error(message, where);
  if (asked_ != &lineup_) throw error;
  if (!lineup_.before) return;
  Answer before;
  if (answer_.state) before.begin_with(answer_.began_with());
  try {
    VersionCall{*lineup_.before, inputs_, lineup_.before_params, as_asked(*lineup_.before, options_)}.run(before);
    if (before.violations && before.violations->read()) return;
  } catch (const std::exception&) {
    return;
  }
  before.capsules = answer_.capsules;
  before.capsule = std::move(answer_.capsule);  // of what is to be looked at
  before.note_failure(error);
  before.by = Answered::previous;
  answer_ = std::move(before);
  policy_.releases().go_back(policy_, lineup_, error);
}

/// Called while `error` is being handled. False: nothing may answer. Throws that error again where what was to answer
/// cannot.
bool Call::stand_in(const std::exception& error) {
  if (asked_ != &lineup_) return answer_as_live(error), true;
  if (!admitted_) return false;
  if (lineup_.has_state && !turn_ && !prepares_) {  // its turn did not come
    if (!dynamic_cast<const capture::WaitedError*>(&error) || on_error() == OnError::raise) return false;
    return recover(), true;
  }
  const bool of_inputs = dynamic_cast<const InputError*>(&error);
  if (replaceable_ ? dynamic_cast<const capture::StackError*>(&error) != nullptr : of_inputs) return false;
  const size_t limit = policy_.runtime().options().failures_to_revert;
  const bool by_script = dynamic_cast<const FormChanged*>(&error);  // which leaves donated inputs as they are
  const bool too_often = !replaceable_ && ++lineup_.version->failures_in_row >= limit && limit > 0;
  if (replaceable_ || by_script || (too_often && options_.donate.empty()))
    if (answer_from_before(error)) return true;
  policy_.report_failure(*lineup_.version, error);
  if (on_error() == OnError::raise || of_inputs || (!replaceable_ && took_inputs())) return false;
  return recover(), true;
}

/// The live version has failed. Where the version before it can answer, it does, and is live again; else the inputs are
/// at fault, and false is returned. A call on trial that only waited for another one, which its budget ends, leaves it
/// to that one to say what is wrong.
bool Call::answer_from_before(const std::exception& error) {
  if (!lineup_.before) return false;
  RunOptions asked = as_asked(*lineup_.before, options_);
  if (replaceable_) asked.deadline = deadline_of_stand_in(options_.deadline, asked_at_);
  answer_.outputs.clear();
  try {
    VersionCall{*lineup_.before, inputs_, lineup_.before_params, asked}.run(answer_);
    answer_.by = Answered::previous;
    count_violations();
  } catch (const std::exception&) {
    answer_.outputs.clear();
    return false;
  }
  Trial& trial = lineup_.version->trial;
  const bool waited =
      dynamic_cast<const capture::WaitedError*>(&error) && Deadline::span(policy_.runtime().options().limits.seconds);
  if (waited && trial.on())
    trial.note_wait(error.what());
  else
    policy_.releases().go_back(policy_, lineup_, error);
  return true;
}

/// Called while the policy's error is being handled; throws that error again where the chosen way does not lead on.
void Call::recover() {
  answer_.outputs.clear();
  if (on_error() == OnError::pass_through) {
    answer_.outputs = pass_through(*lineup_.version, inputs_);
    answer_.by = Answered::passed_through;
    answer_.ran = {};
    return;
  }
  if (!lineup_.last_good) throw;
  RunOptions earlier = options_;
  earlier.params = those_of(*lineup_.last_good, options_.params);
  try {
    VersionCall{*lineup_.last_good, inputs_, lineup_.last_good_params, earlier}.run(answer_);
    answer_.by = Answered::last_good;
    count_violations();
    return;
  } catch (const std::exception& error) {
    policy_.report_failure(*lineup_.last_good, error);
  }
  throw;
}

OnError Call::on_error() const {
  if (prepares_) return OnError::raise;
  if (options_.on_error) return *options_.on_error;
  return lineup_.version->on_error.value_or(policy_.runtime().options().on_error);
}

/// Of an answer that does not fit: whether its outputs lie where donated inputs were, which nobody can be asked with
/// again then.
bool Call::took_inputs() const {
  const auto& outputs = answer_.outputs;
  return std::any_of(options_.donate.begin(), options_.donate.end(), [&](size_t index) {
    return std::any_of(outputs.begin(), outputs.end(),
                       [&](const at::Tensor& output) { return share_memory(output, inputs_[index]); });
  });
}

void Call::settle() {
  if (replaceable_ && answer_.by == Answered::live) afterwards(policy_.runtime().logger(), [&] { settle_trial(); });
  if (!turn_) return;
  try {
    keep_state();
  } catch (const std::exception& error) {  // no memory
    answer_.note_failure(error);
    throw;
  }
  turn_.reset();  // the next call with the key goes on while this one is accounted for
}

void Call::settle_trial() {
  PolicyVersion& version = *lineup_.version;
  if (lineup_.before && overran(options_.deadline, asked_at_, version.trial.time_before())) {
    const std::string late =
        fmt::format("policy '{}' (version {}) returned after the deadline of the call, which version {} would have met",
                    version.name, version.number, lineup_.before->number);
    policy_.releases().go_back(policy_, lineup_, LimitError(late, version.defined_at));
  } else if (const auto waited = version.trial.take_wait(); waited && lineup_.before) {
    policy_.releases().go_back(policy_, lineup_, LimitError(*waited, version.defined_at));
  } else {
    policy_.releases().pass_trial(policy_, lineup_, inputs_);
  }
}

/// Where a version answered that is live, or was and is again, its state is what the next call begins with.
void Call::keep_state() {
  if (answer_.by != Answered::live && answer_.by != Answered::previous) return;
  const PolicyVersion& version = *answer_.version;
  if (version.signature.state.empty()) return;
  // Another version may be live, or be live again after a trial: what it has that this one does not know stays as it
  // is.
  const bool may_go = policy_.line().is_live(version) && !version.trial.on();
  turn_->keep(named(version.signature, std::move(answer_.state->after), may_go ? nullptr : answer_.state->before));
  afterwards(policy_.runtime().logger(), [&] {
    if (answer_.state->other_batch) policy_.state().report_other_batch(rows_of(inputs_));
    policy_.state().report_dropped_keys();
  });
}

void Call::prepare() {
  prepares_ = accounted_ = true;
  answer_.capsules = nullptr;
  const random::DrawAside draws_aside;
  const PolicyVersion& version = *lineup_.version;
  RunOptions keeping = options_;
  keeping.donate.clear();
  if (replaceable_) {
    answer();
  } else {
    admit();
    if (lineup_.has_state) take_turn();
    VersionCall{*lineup_.version, inputs_, lineup_.params, keeping}.run(answer_);
    note_answered(*lineup_.version);
  }
  std::vector<at::Tensor> all(inputs_.begin(), inputs_.end());
  all.insert(all.end(), lineup_.params.begin(), lineup_.params.end());
  if (lineup_.has_state) {
    begin_state(version.signature, inputs_, *answer_.state);
    all.insert(all.end(), answer_.state->given.begin(), answer_.state->given.end());
  }
  const operators::Untrusted graphs(version.held_to());
  const Deadline deadline(options_.deadline);
  lineup_.version->compiled.finish_compiling(all, options_.donate);
}

}  // namespace triage::policy
