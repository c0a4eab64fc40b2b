// Calls while there is a candidate: which side answers, what is counted, and what the shadow runs on.
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/backends/deadline.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/thread_stack.h"
#include "runtime/policy/attribution/flagged.h"
#include "runtime/policy/candidates/shadow.h"
#include "runtime/policy/core.h"
#include "runtime/random/sequence.h"

namespace triage::policy {
namespace {

using Clock = std::chrono::steady_clock;
using Time = std::optional<std::chrono::nanoseconds>;

/// The time of a call that says how fast its version is: one that captured a graph does not.
Time time_of(Clock::time_point begin, const Answer& answer, bool usual = true) {
  if (!usual || answer.ran.form == CallForm::capture) return std::nullopt;
  return Clock::now() - begin;
}

/// Some calls of a canary look at the rules: often enough, and rarely enough to cost nothing.
bool is_time_to_judge(uint64_t calls, const CanaryOptions& options) {
  return calls % 64 == 0 || calls == options.promote_after;
}

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

}  // namespace

void PolicyCore::answer_beside(const Live& live, CallBegin begin, at::ArrayRef<at::Tensor> inputs,
                               const RunOptions& options, Answer& answer) {
  const Beside& beside = *live.beside;
  const bool chosen = beside.candidate->running() && beside.candidate->takes(options.decision_id);
  const bool is_canary = beside.candidate->kind == CandidateKind::canary;
  if (chosen && is_canary) return answer_as_canary(live, begin, inputs, options, answer);
  if (chosen) return answer_and_shadow(live, begin, inputs, options, answer);
  const auto flagged = answer_live(live, begin, inputs, options, answer);
  if (!is_canary || answer.by != Answered::live) return;
  beside.comparison->live_compiled.store(answer.loops().tapes == 0, std::memory_order_relaxed);
  beside.comparison->live.note(time_of(begin, answer, !live.version->trial.on()), flagged);
}

void PolicyCore::answer_as_canary(const Live& live, CallBegin begin, at::ArrayRef<at::Tensor> inputs,
                                  const RunOptions& options, Answer& answer) {
  const Beside& beside = *live.beside;
  PolicyVersion& version = *beside.candidate->version;
  const bool on_trial = version.trial.on();
  try {
    ask_canary(live, inputs, options, answer);
  } catch (const std::exception& error) {
    return answer_for_canary(live, begin, inputs, options, answer, error);
  }
  answer.by = Answered::canary;
  note_answered(version);
  const auto flagged = note_call(version, begin, inputs, options, answer);
  // Where the live version has its kernels of a GPU, and the candidate waits for its own, it is slower for a while.
  Comparison& comparison = *beside.comparison;
  const bool waits = answer.loops().tapes > 0 && comparison.live_compiled.load(std::memory_order_relaxed);
  const uint64_t calls = comparison.candidate.note(time_of(begin, answer, !on_trial && !waits), flagged);
  if (on_trial) version.trial.pass(inputs);
  if (is_time_to_judge(calls, beside.candidate->canary)) judge_canary(beside);
}

/// As a version on trial is asked, for the live version may have to answer.
void PolicyCore::ask_canary(const Live& live, at::ArrayRef<at::Tensor> inputs, const RunOptions& options,
                            Answer& answer) {
  const Live& asked = live.beside->as_live;
  PolicyVersion& version = *asked.version;
  check_inputs(*live.version, inputs, options);
  note_use(options);
  if (!options.params.empty()) override_params(*live.version, live.params, options.params);  // throws on mistakes
  RunOptions mine = options;
  mine.donate.clear();
  mine.params = those_of(version, options.params);
  mine.deadline = trial_deadline(options.deadline, version.trial.time_before(), runtime_->options().limits);
  if (!version.signature.state.empty()) answer.begin_with(state_.look(options.state_key));
  run_version(version, inputs, asked.params, mine, answer);
  if (version.trial.on() || answer.ran.form != CallForm::graph) hold_to_form(asked, inputs, options, answer);
}

/// The candidate has failed. Where the live version fails as well, the inputs are at fault, or the call, and nobody is blamed.
void PolicyCore::answer_for_canary(const Live& live, CallBegin begin, at::ArrayRef<at::Tensor> inputs,
                                   const RunOptions& options, Answer& answer, const std::exception& error) {
  answer = new_answer();
  RunOptions later = options;
  later.deadline = deadline_of_stand_in(options.deadline, begin);
  answer_or_note(live, begin, inputs, options, later, answer);
  if (answer.failure || answer.by != Answered::live) {
    note_call(*live.version, begin, inputs, options, answer);
    return;
  }
  answer.by = Answered::previous;
  answer.note_failure(error);
  note_call(*live.beside->candidate->version, begin, inputs, options, answer);
  // What it waited for is another call of the same script, which will say itself whether that takes too long.
  const bool is_innocent =
      dynamic_cast<const capture::WaitedError*>(&error) || dynamic_cast<const capture::StackError*>(&error);
  if (!is_innocent) blame_canary(*live.beside, error);
}

void PolicyCore::blame_canary(const Beside& beside, const std::exception& error) noexcept {
  try {
    PolicyVersion& version = *beside.candidate->version;
    Comparison& comparison = *beside.comparison;
    comparison.note_failure(error.what());
    const uint64_t failures = comparison.failures.fetch_add(1, std::memory_order_acq_rel) + 1;
    report_failure(version, error);
    const uint64_t limit = beside.candidate->canary.revert_if.failures;
    if (limit == 0 || failures < limit) return;
    const Source where = source_of(error, version.defined_at, version.path);
    const std::string rule = broken_rule(comparison.measure(), beside.candidate->canary).value_or("failures");
    revert_candidate(beside, rule + ": " + error.what(), where);
  } catch (const std::exception&) {  // no memory: the next failure reverts
  }
}

/// One thread at a time; who comes meanwhile has it look once more.
void PolicyCore::judge_canary(const Beside& beside) noexcept {
  std::atomic<uint32_t>& asked = beside.comparison->judges;
  if (asked.fetch_add(1, std::memory_order_acq_rel) > 0) return;
  uint32_t seen;
  do {
    seen = asked.load(std::memory_order_acquire);
    try {
      apply_rules(beside);
    } catch (const std::exception&) {  // no memory: the next look does it
    }
  } while (!asked.compare_exchange_strong(seen, 0, std::memory_order_acq_rel));
}

/// A promotion waits for a reload in progress, which no call may do.
void PolicyCore::apply_rules(const Beside& beside) {
  Comparison& comparison = *beside.comparison;
  Candidate& candidate = *beside.candidate;
  const CanaryOptions& options = candidate.canary;
  if (!candidate.running()) return;
  if (const auto rule = broken_rule(comparison.measure(), options))
    return revert_candidate(beside, *rule, {candidate.version->path, 0});
  const bool is_due = options.promote_after > 0 && comparison.candidate.calls() >= options.promote_after;
  if (!is_due || candidate.promotion_asked.exchange(true)) return;
  const bool posted = runtime_->candidate_thread().post([of = beside.candidate] {
    if (const auto core = of->policy.lock()) core->promote_by_rule(of);
    of->promotion_asked = false;
  });
  if (!posted) candidate.promotion_asked = false;
}

void PolicyCore::answer_and_shadow(const Live& live, CallBegin begin, at::ArrayRef<at::Tensor> inputs,
                                   const RunOptions& options, Answer& answer) {
  const Beside& beside = *live.beside;
  const ShadowOptions& shadow = beside.candidate->shadow;
  std::shared_ptr<ShadowCall> call;
  try {
    call = std::make_shared<ShadowCall>();
    if (!options.donate.empty()) {  // what they hold is gone afterwards
      call->room = runtime_->candidate_thread().reserve(2 * bytes_of(inputs), shadow.queue, shadow.queue_bytes);
      if (call->room) call->inputs = copied(inputs);
    }
  } catch (const std::exception& error) {
    note_uncopied(*beside.comparison, error);
    call = nullptr;
  }
  try {
    answer_live(live, begin, inputs, options, answer);
  } catch (const std::exception&) {
    beside.comparison->not_comparable("the live version did not answer");
    throw;
  }
  try {
    if (call) hand_to_shadow(call, Clock::now() - begin, live, inputs, options, answer);
  } catch (const std::exception& error) {
    note_uncopied(*beside.comparison, error);
  }
}

/// What the host may change or free once the call has returned is copied.
void PolicyCore::hand_to_shadow(const std::shared_ptr<ShadowCall>& call, std::chrono::nanoseconds time,
                                const Live& live, at::ArrayRef<at::Tensor> inputs, const RunOptions& options,
                                const Answer& answer) {
  const Beside& beside = *live.beside;
  const ShadowOptions& shadow = beside.candidate->shadow;
  const PolicyVersion& version = *beside.candidate->version;
  const std::string why_not = why_not_comparable(answer, inputs);
  if (!why_not.empty()) return beside.comparison->not_comparable(why_not);
  if (options.donate.empty()) {
    const size_t bytes = bytes_of(inputs) + bytes_of(answer.outputs);
    call->room = runtime_->candidate_thread().reserve(bytes, shadow.queue, shadow.queue_bytes);
    if (call->room) call->inputs = copied(inputs);
  }
  if (call->room) {
    call->outputs = copied(answer.outputs);
    call->candidate = beside.candidate;
    call->comparison = beside.comparison;
    call->live = live.version;
    call->state = answer.began_with();
    call->params = beside.as_live.params;
    if (!options.params.empty())
      call->params = override_params(version, std::move(call->params), those_of(version, options.params));
    std::vector<bool> kept;
    call->flags_outputs = answer.flags_outputs(kept);
    call->time = time;
    call->timed = answer.ran.form != CallForm::capture;
    call->decision_id = options.decision_id;
    call->sample_ids = options.sample_ids.vec();
    const bool posted = runtime_->candidate_thread().post_call([call, limits = runtime_->options().limits] {
      if (call->candidate->running()) run_in_shadow(*call, limits);
    });
    if (posted) return;
  }
  beside.comparison->dropped.fetch_add(1, std::memory_order_relaxed);
}

/// Functions of the host are not called, and no random number of a real call is drawn.
void PolicyCore::run_in_shadow(ShadowCall& call, const Limits& limits) {
  PolicyVersion& version = *call.candidate->version;
  const capture::SyntheticInputs no_host_functions;
  Answer answer;
  if (call.state) answer.begin_with(call.state);
  std::chrono::nanoseconds time{0};
  std::string failure;
  try {
    const at::ThreadLocalStateGuard as_called(call.thread);
    const random::DrawAside draws_aside;
    RunOptions options;
    options.deadline = Deadline::in(10 * limits.seconds);
    const auto begin = Clock::now();
    run_unrecorded(version, call.inputs, call.params, options, answer);
    time = Clock::now() - begin;
  } catch (const std::exception& error) {
    failure = error.what();
    if (failure.empty()) failure = "an error without a message";
  }
  if (no_host_functions.stopped()) return call.comparison->not_comparable("the candidate calls a function of the host");
  if (answer.ran.entry && answer.ran.entry->draws)
    return call.comparison->not_comparable("the candidate draws random numbers");
  if (!failure.empty()) return count_shadow_failure(*call.comparison, failure);
  try {
    const at::NoGradGuard no_grad;
    compare_answers(call, answer, time);
  } catch (const std::exception& error) {
    call.comparison->not_comparable(fmt::format("its outputs cannot be compared: {}", error.what()));
  }
}

}  // namespace triage::policy
