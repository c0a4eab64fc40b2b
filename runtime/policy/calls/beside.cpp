// Calls while there is a candidate: which side answers, what is counted, and what the shadow runs on.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/thread_stack.h"
#include "runtime/policy/attribution/flagged.h"
#include "runtime/policy/calls/call.h"
#include "runtime/policy/candidates/shadow.h"
#include "runtime/policy/core/policy_core.h"
#include "runtime/policy/releases/releases.h"

namespace triage::policy {
namespace {

std::string why_not_comparable(const Answer& answer, at::ArrayRef<at::Tensor> inputs) {
  if (answer.by != Answered::live) return "the live version did not answer";
  if (answer.ran.entry && answer.ran.entry->draws) return "the live version draws random numbers";
  for (const auto tensors : {inputs, at::ArrayRef<at::Tensor>(answer.outputs)})
    if (!std::all_of(tensors.begin(), tensors.end(), is_dense_cpu))
      return "a tensor of the call is not a dense one on the CPU";
  return {};
}

/// The call itself has its answer, or will have it.
void note_uncopied(Comparison& comparison, const std::exception& error) noexcept {
  try {
    comparison.not_comparable(fmt::format("its tensors could not be copied: {}", error.what()));
  } catch (const std::exception&) {  // no memory
    comparison.dropped.fetch_add(1, std::memory_order_relaxed);
  }
}

/// Some calls of a canary look at the rules: often enough, and rarely enough to cost nothing.
bool is_time_to_judge(uint64_t calls, const CanaryOptions& options) {
  return calls % 64 == 0 || calls == options.promote_after;
}

/// A promotion writes what is kept for a restart and tells the host, which no call waits for.
void apply_rules(PolicyCore& policy, const CandidateLineup& beside) {
  Comparison& comparison = *beside.comparison;
  Candidate& candidate = *beside.candidate;
  const CanaryOptions& options = candidate.canary;
  if (!candidate.running()) return;
  if (const auto rule = broken_rule(comparison.measure(), options))
    return policy.candidates().revert(beside.candidate, *rule, {candidate.version->path, 0});
  const bool is_due = options.promote_after > 0 && comparison.candidate.calls() >= options.promote_after;
  if (!is_due || candidate.promotion_asked.exchange(true)) return;
  const bool posted = policy.runtime().candidate_thread().post([of = beside.candidate] {
    if (const auto core = of->policy.lock()) core->releases().promote_by_rule(*core, of);
    of->promotion_asked = false;
  });
  if (!posted) candidate.promotion_asked = false;
}

}  // namespace

void PolicyCall::run_beside() {
  Candidate& candidate = *lineup_.beside->candidate;
  const bool chosen = candidate.running() && candidate.takes(options_.decision_id);
  const bool is_canary = candidate.kind == CandidateKind::canary;
  if (chosen) return is_canary ? run_as_canary() : run_and_shadow();
  answer();
  account(*lineup_.version);
  if (is_canary && answer_.by == Answered::live) count_live_side();
}

void PolicyCall::count_live_side() const {
  Comparison& comparison = *lineup_.beside->comparison;
  comparison.live_compiled.store(answer_.loops().tapes == 0, std::memory_order_relaxed);
  comparison.live.note(time_of_version(/*usual=*/!lineup_.version->trial.on()), flagged_);
}

/// The time so far, where it says how fast the version is: a call that captured a graph does not.
std::optional<std::chrono::nanoseconds> PolicyCall::time_of_version(bool usual) const {
  if (!usual || answer_.ran.form == CallForm::capture) return std::nullopt;
  return Clock::now() - begin_;
}

void PolicyCall::run_as_canary() {
  const CandidateLineup& beside = *lineup_.beside;
  PolicyVersion& version = *beside.candidate->version;
  const bool on_trial = version.trial.on();
  asked_ = &beside.lineup;
  replaceable_ = true;
  answer();
  if (answer_.by != Answered::canary) return;
  account(version);
  // Where the live version has its kernels of a GPU, and the candidate waits for its own, it is slower for a while.
  Comparison& comparison = *beside.comparison;
  const bool waits = answer_.loops().tapes > 0 && comparison.live_compiled.load(std::memory_order_relaxed);
  const uint64_t calls = comparison.candidate.note(time_of_version(/*usual=*/!on_trial && !waits), flagged_);
  if (on_trial) version.trial.pass_beside(inputs_);
  if (is_time_to_judge(calls, beside.candidate->canary)) judge_canary();
}

/// The canary has failed. Where the live version fails as well, the inputs are at fault, or the call, and nobody is
/// blamed.
void PolicyCall::answer_as_live(const std::exception& error) {
  const CandidateLineup& beside = *lineup_.beside;
  turn_.reset();  // nothing of the canary's state is kept
  RunOptions later = options_;
  later.deadline = deadline_of_stand_in(options_.deadline, begin_);
  accounted_ = true;  // the call of the live version is
  PolicyCall live(policy_, inputs_, later, &lineup_);
  live.begin_ = begin_;
  live.answer();
  const bool at_fault = !live.answer_.failure && live.answer_.by == Answered::live;
  if (at_fault) {
    live.answer_.by = Answered::previous;
    live.answer_.note_failure(error);
  }
  live.account(at_fault ? *beside.candidate->version : *lineup_.version);
  answer_ = std::move(live.answer_);
  // What it waited for is another call of the same script, which will say itself whether that takes too long.
  const bool is_innocent =
      dynamic_cast<const capture::WaitedError*>(&error) || dynamic_cast<const capture::StackError*>(&error);
  if (at_fault && !is_innocent) blame_canary(error);
}

/// Promotes or reverts the canary where its rules say so. One thread at a time; who comes meanwhile has it look once
/// more.
void PolicyCall::judge_canary() const noexcept {
  const CandidateLineup& beside = *lineup_.beside;
  std::atomic<uint32_t>& asked = beside.comparison->judges;
  if (asked.fetch_add(1, std::memory_order_acq_rel) > 0) return;
  uint32_t seen;
  do {
    seen = asked.load(std::memory_order_acquire);
    try {
      apply_rules(policy_, beside);
    } catch (const std::exception&) {  // no memory: the next look does it
    }
  } while (!asked.compare_exchange_strong(seen, 0, std::memory_order_acq_rel));
}

/// It has failed a call that the live version answered.
void PolicyCall::blame_canary(const std::exception& error) const noexcept {
  const CandidateLineup& beside = *lineup_.beside;
  try {
    PolicyVersion& version = *beside.candidate->version;
    Comparison& comparison = *beside.comparison;
    comparison.note_failure(error.what());
    const uint64_t failures = comparison.failures.fetch_add(1, std::memory_order_acq_rel) + 1;
    policy_.report_failure(version, error);
    const uint64_t limit = beside.candidate->canary.revert_if.failures;
    if (limit == 0 || failures < limit) return;
    const Source where = source_of(error, version.defined_at, version.path);
    const std::string rule = broken_rule(comparison.measure(), beside.candidate->canary).value_or("failures");
    policy_.candidates().revert(beside.candidate, rule + ": " + error.what(), where);
  } catch (const std::exception&) {  // no memory: the next failure reverts
  }
}

void PolicyCall::run_and_shadow() {
  Comparison& comparison = *lineup_.beside->comparison;
  const std::shared_ptr<ShadowCall> shadow = begin_shadow();
  try {
    answer();
  } catch (const std::exception&) {
    comparison.not_comparable("the live version did not answer");
    throw;
  }
  account(*lineup_.version);
  try {
    if (shadow) hand_to_shadow(shadow);
  } catch (const std::exception& error) {
    note_uncopied(comparison, error);
  }
}

/// Null where there is no memory. What is donated is copied now: it is gone afterwards.
std::shared_ptr<ShadowCall> PolicyCall::begin_shadow() const {
  const ShadowOptions& options = lineup_.beside->candidate->shadow;
  try {
    auto shadow = std::make_shared<ShadowCall>();
    if (options_.donate.empty()) return shadow;
    shadow->room =
        policy_.runtime().candidate_thread().reserve(2 * bytes_of(inputs_), options.queue, options.queue_bytes);
    if (shadow->room) shadow->inputs = copied(inputs_);
    return shadow;
  } catch (const std::exception& error) {
    note_uncopied(*lineup_.beside->comparison, error);
    return nullptr;
  }
}

/// What the host may change or free once the call has returned is copied.
void PolicyCall::hand_to_shadow(const std::shared_ptr<ShadowCall>& shadow) const {
  const CandidateLineup& beside = *lineup_.beside;
  const ShadowOptions& options = beside.candidate->shadow;
  CandidateThread& thread = policy_.runtime().candidate_thread();
  const auto time = Clock::now() - begin_;
  const std::string why_not = why_not_comparable(answer_, inputs_);
  if (!why_not.empty()) return beside.comparison->not_comparable(why_not);
  const PolicyVersion& version = *beside.candidate->version;
  shadow->params = beside.lineup.params;
  if (!options_.params.empty()) {
    try {
      shadow->params = override_params(version, std::move(shadow->params), those_of(version, options_.params));
    } catch (const InputError& error) {  // the candidate does not allow what the live version does
      return beside.comparison->not_comparable(error.what());
    }
  }
  if (options_.donate.empty()) {
    shadow->room = thread.reserve(bytes_of(inputs_) + bytes_of(answer_.outputs), options.queue, options.queue_bytes);
    if (shadow->room) shadow->inputs = copied(inputs_);
  }
  if (!shadow->room) return count_dropped(*beside.comparison);
  shadow->outputs = copied(answer_.outputs);
  shadow->candidate = beside.candidate;
  shadow->comparison = beside.comparison;
  shadow->live = lineup_.version;
  shadow->state = answer_.began_with();
  shadow->flags_outputs = answer_.flags_outputs();
  shadow->time = time;
  shadow->timed = answer_.ran.form != CallForm::capture;
  shadow->decision_id = options_.decision_id;
  shadow->sample_ids = options_.sample_ids.vec();
  const bool posted = thread.post_call([shadow, limits = policy_.runtime().options().limits] {
    if (shadow->candidate->running()) run_in_shadow(*shadow, limits);
  });
  if (!posted) count_dropped(*beside.comparison);
}

}  // namespace triage::policy
