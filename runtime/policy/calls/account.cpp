// What a call leaves behind: counts, RunInfo, the decision log, and the trace.
#include <triage/layout.h>
#include <triage/location.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "runtime/messages/debugging/trace_file.h"
#include "runtime/messages/enum_names.h"
#include "runtime/policy/attribution/flagged.h"
#include "runtime/policy/calls/call.h"
#include "runtime/policy/core/policy_core.h"
#include "runtime/policy/decisions/decisions.h"
#include "runtime/typing/first_state.h"

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
  counters.flagged(totals);
  return totals;
}

/// Nothing where no flags could be read.
std::optional<Counters::Flagged> count_flags(const FlaggedSamples& found, const std::vector<FlaggedSample>& samples,
                                             Counters& counters, FlagCounts& kinds) {
  FlaggedTotals totals{
      {static_cast<uint64_t>(found.samples), samples.size(), 0, found.full}, found.counted, found.elsewhere};
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

/// Kinds of errors are counted for the version that was called, unless another one answered that calls the codes
/// otherwise.
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

/// Recovery hides no fault: what the live version failed is told, whatever answered. A canary answers as a live version
/// does.
bool has_fault(const Answer& answer) {
  return answer.failure || (answer.violations && answer.violations->count() > 0) ||
         (answer.by != Answered::live && answer.by != Answered::canary);
}

std::string bounded(std::string_view text, size_t longest) { return std::string(text.substr(0, longest)); }

const char* done_to(const FlaggedSample& sample, Answered by) {
  if (by == Answered::passed_through) return "passed_through";
  return messages::name_in<Treatment::not_compared>({"repaired", "out_of_range", "kept", "not_compared"},
                                                    sample.treatment);
}

/// Of the first ones. Names of the host belong to rows of the inputs: where the flags have other rows, nobody knows
/// whose they are.
void add_samples(Decision& decision, const FlaggedSamples& found, const std::vector<FlaggedSample>& samples,
                 at::ArrayRef<std::string> ids, size_t most) {
  const bool named = found.samples == static_cast<int64_t>(ids.size());
  const size_t listed = std::min(samples.size(), most);
  decision.samples.reserve(listed);
  size_t begin = 0;
  for (size_t i = 0; i < listed; ++i) {
    const FlaggedSample& sample = samples[i];
    const size_t count = sample.errors_end - begin, kept = std::min(count, most_errors_of_sample);
    for (size_t at = begin; at < begin + kept; ++at) decision.errors.push_back(found.errors[at].slot);
    decision.samples.push_back({sample.sample,
                                named ? bounded(ids[static_cast<size_t>(sample.sample)], longest_id) : std::string(),
                                done_to(sample, decision.answered), decision.errors.size(), count - kept});
    begin = sample.errors_end;
  }
}

/// Where the errors that are listed stand first, without waiting for a device.
void add_positions(Decision& decision, const std::vector<FirstPositions>& positions) {
  const bool at_hand = std::all_of(positions.begin(), positions.end(),
                                   [](const FirstPositions& first) { return is_dense_cpu(first.at); });
  if (positions.empty() || !at_hand) return;
  size_t error = 0;
  for (const Decision::DecisionSample& sample : decision.samples)
    for (; error < sample.errors_end; ++error) {
      const uint16_t slot = decision.errors[error];
      const std::string location = ErrorLocation::name(slot >> LOCATION_SHIFT);
      const auto code = static_cast<Code>(slot >> CODE_SHIFT & CODE_MASK);
      if (auto position = find_position(positions, location, sample.sample, code); !position.empty())
        decision.positions.emplace_back(error, std::move(position));
    }
}

}  // namespace

/// Counts the call for `called`. Never fails it: where there is no memory for a statistic, it is lost.
void PolicyCall::account(const PolicyVersion& called) noexcept {
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
    if (decisions) note_decision(DecisionQueue::of(*decisions), called, time, found, samples);
    if (options_.info) fill(*options_.info, called, answer_, time, flagged_);
  } catch (const std::exception&) {
    if (answer_.version) answer_.version->keep_locations();
    if (decisions) DecisionQueue::of(*decisions).drop();
  }
}

/// Counts the samples that outputs of flags tell of, and lists them for the decision log.
void PolicyCall::read_flags(const PolicyVersion& called, FlaggedSamples& found, std::vector<FlaggedSample>& samples) {
  const RuntimeOptions& settings = policy_.runtime().options();
  const std::vector<bool>& is_flags = answer_.flags_outputs();
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

/// A line for the call, where it gets one.
void PolicyCall::note_decision(DecisionQueue& queue, const PolicyVersion& called, std::chrono::nanoseconds time,
                               const FlaggedSamples& found, const std::vector<FlaggedSample>& samples) {
  if (samples.empty() && !has_fault(answer_) && !queue.takes_clean(options_.decision_id)) return;
  const PolicyVersion& version = answer_.version_or(called);
  Decision decision;
  decision.time = std::chrono::system_clock::now() - std::chrono::duration_cast<std::chrono::microseconds>(time);
  decision.duration = time;
  decision.decision_id = bounded(options_.decision_id, longest_id);
  decision.trace_id = bounded(options_.trace_id, longest_id);
  decision.policy = called.name;
  decision.path = called.path;
  decision.hash = version.hash;
  decision.failure = bounded(answer_.message, longest_failure);
  decision.failure_kind = answer_.failure;
  decision.version = version.number;
  decision.live_version = called.number;
  decision.codes = version.signature.codes;
  decision.answered = answer_.by;
  decision.form = answer_.form();
  decision.batch = rows_of(inputs_);
  decision.totals = called.counters->totals();
  decision.flagged = static_cast<int64_t>(samples.size());
  decision.repaired = std::count_if(samples.begin(), samples.end(),
                                    [](const auto& sample) { return sample.treatment == Treatment::repaired; });
  decision.full = found.full;
  if (answer_.violations)
    for (const Violations::OutputViolation& output : answer_.violations->outputs)
      if (output.count > 0)
        decision.violations.push_back({version.signature.outputs[output.index], static_cast<uint64_t>(output.count)});
  add_samples(decision, found, samples, options_.sample_ids, queue.options().max_samples);
  add_positions(decision, answer_.positions);
  decision.capsule = std::move(answer_.capsule.file);
  decision.unsaved = std::move(answer_.capsule.unsaved);
  queue.note(std::move(decision));
}

}  // namespace triage::policy
