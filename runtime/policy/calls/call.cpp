#include "runtime/policy/calls/call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/error.h>

#include <exception>

#include "runtime/backends/deadline.h"
#include "runtime/messages/profiling/profiler_spans.h"
#include "runtime/operators/untrusted.h"
#include "runtime/policy/afterwards.h"
#include "runtime/policy/attribution/flagged.h"
#include "runtime/policy/core/policy_core.h"
#include "runtime/policy/decisions/decisions.h"
#include "runtime/policy/releases/releases.h"
#include "runtime/random/sequence.h"
#include "runtime/typing/first_state.h"

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

/// The ends of the clock stand for "never" and "long ago"; no difference to them fits. Nothing for other deadlines.
std::optional<RunOptions> with_plain_deadline(const RunOptions& options) {
  if (!options.deadline || Deadline::is_plain(*options.deadline)) [[likely]]
    return std::nullopt;
  RunOptions plain = options;
  plain.deadline = Deadline::plain(*options.deadline);
  return plain;
}

[[noreturn]] void throw_input_count(const PolicyVersion& version, size_t got) {
  const auto& names = version.signature.inputs;
  throw InputError(fmt::format("policy '{}' takes {} input{} ({}), got {}", version.name, names.size(),
                               names.size() == 1 ? "" : "s", fmt::join(names, ", "), got));
}

[[noreturn]] void throw_undefined(const PolicyVersion& version, size_t index) {
  throw InputError(fmt::format("policy '{}': input '{}' is an undefined tensor; every input must be given",
                               version.name, version.signature.inputs[index]));
}

void check_sample_ids(const PolicyVersion& version, at::ArrayRef<at::Tensor> inputs, at::ArrayRef<std::string> ids) {
  const int64_t rows = rows_of(inputs);
  if (rows != static_cast<int64_t>(ids.size()))
    throw InputError(fmt::format("policy '{}': RunOptions::sample_ids has {} names for a batch of {} samples",
                                 version.name, ids.size(), rows));
}

}  // namespace

PolicyCall::PolicyCall(PolicyCore& policy, at::ArrayRef<at::Tensor> inputs, const RunOptions& options,
                       const Lineup* lineup)
    : policy_(policy),
      reading_(policy.line().epochs()),
      plain_(with_plain_deadline(options)),
      lineup_(lineup ? *lineup : policy.line().lineup()),
      inputs_(inputs),
      options_(plain_ ? *plain_ : options),
      asked_(&lineup_),
      replaceable_(lineup_.version->trial.on()) {
  if (Loading::is_cancellable()) [[unlikely]]
    no_reload_.emplace(nullptr);
  if (const auto& log = policy.runtime().options().decisions) answer_.capsules = DecisionQueue::of(*log).capsules();
}

PolicyCall::~PolicyCall() {
  if (accounted_) return;
  turn_.reset();
  answer_.by = Answered::failed;
  account(*lineup_.version);
}

std::vector<at::Tensor> PolicyCall::run(PolicyCore& policy, at::ArrayRef<at::Tensor> inputs,
                                        const RunOptions& options) {
  const messages::ProfilerSpan span([&] { return "policy " + policy.name(); });
  PolicyCall call(policy, inputs, options);
  if (call.lineup_.beside) [[unlikely]] {
    call.run_beside();
  } else {
    call.answer();
    call.account(*call.lineup_.version);
  }
  return std::move(call.answer_.outputs);
}

void PolicyCall::answer() {
  try {
    admit();
    if (lineup_.has_state || asked_ != &lineup_) [[unlikely]]
      take_turn();
    const auto mine = replaceable_ ? std::optional(replaceable_options()) : std::nullopt;
    VersionCall{*asked_->version, inputs_, asked_->params, mine ? *mine : options_}.run(answer_);
    accept();
  } catch (const std::exception& error) {
    answer_.note_failure(error);
    if (!stand_in(error)) throw;
  }
  if (replaceable_ || turn_) [[unlikely]]
    settle();
}

/// What it throws, for other inputs than the signature has and for options that do not fit them, is the host's mistake:
/// nothing stands in.
void PolicyCall::admit() {
  const PolicyVersion& live = *lineup_.version;
  if (inputs_.size() != live.signature.inputs.size()) throw_input_count(live, inputs_.size());
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (!inputs_[i].defined()) throw_undefined(live, i);
  for (const size_t index : options_.donate)
    if (index >= inputs_.size())
      throw InputError(fmt::format("policy '{}': cannot donate input {}; there are {} inputs, counted from 0",
                                   live.name, index, inputs_.size()));
  if (!options_.sample_ids.empty()) check_sample_ids(live, inputs_, options_.sample_ids);
  policy_.use().note(options_);
  if (replaceable_ && !options_.params.empty()) override_params(live, lineup_.params, options_.params);
  admitted_ = true;
}

/// Another call with the same key has come to its end. A canary has state of its own: a key begins with the state of
/// the live version at the first call that the canary answers. A call that only prepares uses the state, and keeps
/// none.
void PolicyCall::take_turn() {
  StateStore& state = policy_.state().store();
  if (prepares_) return answer_.begin_with(state.look(options_.state_key));
  const bool is_canary = asked_ != &lineup_;
  if (is_canary && asked_->version->signature.state.empty()) return;
  turn_.emplace(is_canary ? lineup_.beside->candidate->own_state : state, options_.state_key, options_.deadline,
                policy_.name());
  KeptState before = turn_->state();
  if (is_canary && !before) before = state.look(options_.state_key);
  answer_.begin_with(std::move(before));
}

/// Where another version may have to answer, nothing is donated, and so much time is left that it can.
RunOptions PolicyCall::replaceable_options() {
  const PolicyVersion& version = *asked_->version;
  asked_at_ = Clock::now();
  RunOptions mine = as_asked(version, options_);
  if (asked_->before)
    mine.deadline = trial_deadline(options_.deadline, version.trial.time_before(), policy_.runtime().options().limits);
  return mine;
}

/// The version that was asked has given an answer.
void PolicyCall::accept() {
  PolicyVersion& version = *asked_->version;
  const bool gives_one_form = answer_.ran.form == CallForm::graph && !version.trial.compares();
  if (!gives_one_form) hold_to_form();
  note_answered(version);
  answer_.by = asked_ == &lineup_ ? Answered::live : Answered::canary;
  if (answer_.violations && !prepares_) [[unlikely]]
    meet_violations();
}

void PolicyCall::settle() {
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

void PolicyCall::settle_trial() {
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

/// Where a version answered that is live, or was and is again, its state is what the next call begins with; where a
/// canary answered, what its next call does.
void PolicyCall::keep_state() {
  if (answer_.by == Answered::last_good || answer_.by == Answered::passed_through) return;
  const PolicyVersion& version = *answer_.version;
  if (version.signature.state.empty()) return;
  // Another version may be live, or be live again after a trial: what it has that this one does not know stays as it
  // is. A canary keeps what it declares.
  const bool is_canary = answer_.by == Answered::canary;
  const bool may_go = is_canary || (policy_.line().is_live(version) && !version.trial.on());
  turn_->keep(named(version.signature, std::move(answer_.state->after), may_go ? nullptr : answer_.state->before));
  if (is_canary && lineup_.beside->candidate->state() == CandidateState::promoted)  // meanwhile
    policy_.state().take_over(*lineup_.beside->candidate);
  afterwards(policy_.runtime().logger(), [&] {
    if (answer_.state->other_batch) policy_.state().report_other_batch(rows_of(inputs_));
    policy_.state().report_dropped_keys();
  });
}

void PolicyCall::prepare() {
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
