// What a call leaves behind: counts, RunInfo, the decision log, and the trace.
#include <algorithm>
#include <exception>

#include "runtime/messages/debugging/trace_file.h"
#include "runtime/policy/attribution/flagged.h"
#include "runtime/policy/calls/call.h"
#include "runtime/policy/core/policy_core.h"
#include "runtime/policy/decisions/decisions.h"

namespace triage::policy {
namespace {

using std::chrono::nanoseconds;

/// Errors of one kind mostly come in runs.
void count_errors(const std::vector<SampleError>& errors, FlagCounts& counts) noexcept {
  for (size_t begin = 0, end = 0; begin < errors.size(); begin = end) {
    while (end < errors.size() && errors[end].slot == errors[begin].slot) ++end;
    counts.add(errors[begin].slot, end - begin);
  }
}

std::optional<Counters::Flagged> count_totals(const FlaggedTotals& totals, Counters& counters) {
  if (totals.elsewhere) counters.uncounted();
  if (!totals.counted) return std::nullopt;
  Counters::Flagged counts{static_cast<uint64_t>(totals.samples), totals.flagged};
  counts.repaired = totals.repaired;
  counts.full = totals.full;
  counters.flagged(counts);
  return counts;
}

/// Nothing where no flags could be read.
std::optional<Counters::Flagged> count_flags(const FlaggedSamples& found, const std::vector<FlaggedSample>& samples,
                                             Counters& counters, FlagCounts& kinds) {
  FlaggedTotals totals{found.samples, samples.size(), 0, found.full, found.counted, found.elsewhere};
  for (const FlaggedSample& sample : samples) totals.repaired += sample.treatment == Treatment::repaired;
  if (totals.counted) count_errors(found.errors, kinds);
  return count_totals(totals, counters);
}

/// The same where nobody asks which samples they are.
std::optional<Counters::Flagged> count_flags(const AnsweredCall& call, Counters& counters, FlagCounts& kinds) {
  const auto add = [&](uint16_t slot, uint64_t count) { kinds.add(slot, count); };
  const auto totals = count_flagged(call, add);
  if (!totals) {
    const FlaggedSamples found = flagged_samples(call);
    return count_flags(found, treatments(call, found), counters, kinds);
  }
  return count_totals(*totals, counters);
}

/// Kinds of errors are counted for the version that was called, unless another one answered that calls the codes otherwise.
FlagCounts& kinds_of(const PolicyVersion& called, const PolicyVersion& answered) {
  return (called.signature.codes == answered.signature.codes ? called : answered).counters->flags();
}

void fill(RunInfo& info, const PolicyVersion& called, const Answer& answer, nanoseconds time,
          const std::optional<Counters::Flagged>& flagged) {
  const PolicyVersion& version = answer.version_or(called);
  info.version = version.number;
  info.hash = version.hash;
  info.answered = answer.by;
  info.form = answer.form();
  info.loops = answer.computed() ? answer.loops() : LoopTiers{};
  info.time = time;
  info.flagged = flagged ? static_cast<int64_t>(flagged->flagged) : -1;
  info.repaired = flagged ? static_cast<int64_t>(flagged->repaired) : -1;
  info.violations = answer.violations ? answer.violations->count() : 0;
  info.failure = answer.message;
  info.positions = answer.positions;
}

}  // namespace

/// Counts the call for `called`. Never fails it: where there is no memory for a statistic, it is lost.
void Call::account(const PolicyVersion& called) noexcept {
  accounted_ = true;
  const nanoseconds time = Clock::now() - begin_;
  Counters& counters = *called.counters;
  counters.answered(answer_.by, answer_.form(), time);
  if (answer_.failure) counters.failed(*answer_.failure);
  const auto& decisions = policy_.runtime().options().decisions;
  try {
    FlaggedSamples found;
    std::vector<FlaggedSample> samples;
    if (answer_.by != Answered::failed) read_flags(called, found, samples);
    if (decisions) note_decision(*decisions, {called, time, inputs_, options_, found, samples}, answer_);
    if (options_.info) fill(*options_.info, called, answer_, time, flagged_);
  } catch (const std::exception&) {
    if (answer_.version) answer_.version->keep_locations();
    if (decisions) DecisionQueue::of(*decisions).drop();
  }
}

/// Counts the samples that outputs of flags tell of, and lists them for the decision log.
void Call::read_flags(const PolicyVersion& called, FlaggedSamples& found, std::vector<FlaggedSample>& samples) {
  const RuntimeOptions& settings = policy_.runtime().options();
  std::vector<bool> kept;
  const std::vector<bool>& is_flags = answer_.flags_outputs(kept);
  const bool looks = settings.count_flags || settings.decisions;
  if (answer_.version && (!looks || leaves_unread(answer_.outputs, is_flags))) answer_.version->keep_locations();
  if (looks) {
    const PolicyVersion& asked = answer_.version ? *answer_.version : called;  // none, where its turn did not come
    const AnsweredCall call{inputs_,
                            answer_.outputs,
                            called.signature.inputs,
                            asked.signature.outputs,
                            is_flags,
                            options_.donate,
                            answer_.violations ? answer_.violations->rows() : at::Tensor()};
    FlagCounts& kinds = kinds_of(called, asked);
    if (settings.decisions) {
      found = flagged_samples(call);
      samples = treatments(call, found);
      if (settings.count_flags) flagged_ = count_flags(found, samples, *called.counters, kinds);
    } else {
      flagged_ = count_flags(call, *called.counters, kinds);
    }
  }
  if (messages::trace_on())
    policy_.flags_trace().note(answer_.outputs, is_flags, answer_.version_or(called).signature.codes);
}

}  // namespace triage::policy
