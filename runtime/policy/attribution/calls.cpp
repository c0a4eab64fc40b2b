// What calls leave behind: counts, RunInfo, and the trace.
#include <algorithm>
#include <chrono>
#include <exception>

#include "runtime/messages/debugging/trace_file.h"
#include "runtime/policy/attribution/flagged.h"
#include "runtime/policy/core.h"
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
  counters.flagged(counts);
  return counts;
}

/// Nothing where no flags could be read.
std::optional<Counters::Flagged> count_flags(const FlaggedSamples& found, const std::vector<FlaggedSample>& samples,
                                             Counters& counters) {
  FlaggedTotals totals{found.samples, samples.size(), 0, found.counted, found.elsewhere};
  for (const FlaggedSample& sample : samples) totals.repaired += sample.treatment == Treatment::repaired;
  if (totals.counted) count_errors(found.errors, counters.flags());
  return count_totals(totals, counters);
}

/// The same where nobody asks which samples they are.
std::optional<Counters::Flagged> count_flags(const AnsweredCall& call, Counters& counters) {
  const auto add = [&](uint16_t slot, uint64_t count) { counters.flags().add(slot, count); };
  const auto totals = count_flagged(call, add);
  if (!totals) {
    const FlaggedSamples found = flagged_samples(call);
    return count_flags(found, treatments(call, found), counters);
  }
  return count_totals(*totals, counters);
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
  info.failure = answer.message;
}

}  // namespace

/// Never fails a call: where there is no memory for a statistic, it is lost.
std::optional<Counters::Flagged> PolicyCore::note_call(const PolicyVersion& called, CallBegin begin,
                                                       at::ArrayRef<at::Tensor> inputs, const RunOptions& options,
                                                       Answer& answer) noexcept {
  const nanoseconds time = std::chrono::steady_clock::now() - begin;
  Counters& counters = *called.counters;
  counters.answered(answer.by, answer.form(), time);
  if (answer.failure) counters.failed(*answer.failure);
  const RuntimeOptions& settings = runtime_->options();
  std::optional<Counters::Flagged> counted;
  try {
    FlaggedSamples found;
    std::vector<FlaggedSample> samples;
    if (answer.by != Answered::failed) {
      std::vector<bool> kept;
      const std::vector<bool>& is_flags = answer.flags_outputs(kept);
      const bool looks = settings.count_flags || settings.decisions;
      if (answer.version && (!looks || leaves_unread(answer.outputs, is_flags))) answer.version->keep_locations();
      if (looks) {
        const AnsweredCall call{inputs,   answer.outputs, called.signature.inputs, answer.version->signature.outputs,
                                is_flags, options.donate};
        if (settings.decisions) {
          found = flagged_samples(call);
          samples = treatments(call, found);
          if (settings.count_flags) counted = count_flags(found, samples, counters);
        } else {
          counted = count_flags(call, counters);
        }
      }
      if (messages::trace_on()) flags_trace_.note(answer.outputs, is_flags);
    }
    if (settings.decisions) note_decision(*settings.decisions, called, time, inputs, options, answer, found, samples);
    if (options.info) fill(*options.info, called, answer, time, counted);
  } catch (const std::exception&) {
    if (answer.version) answer.version->keep_locations();
    if (settings.decisions) DecisionQueue::of(*settings.decisions).drop();
  }
  return counted;
}

CallStatistics PolicyCore::CountedVersion::read() const {
  CallStatistics calls = counters->read();
  calls.recompiles = compile_counts->recompiles.load(std::memory_order_relaxed);
  calls.graph_breaks = compile_counts->graph_breaks.load(std::memory_order_relaxed);
  return calls;
}

/// With mutex_ held.
void PolicyCore::forget_unused_counts() const {
  std::erase_if(counted_, [this](const CountedVersion& version) {
    if (!version.counters->ended()) return false;
    gone_ += version.read();
    return true;
  });
}

PolicyStatistics PolicyCore::statistics() const {
  const std::lock_guard lock(mutex_);
  forget_unused_counts();
  PolicyStatistics all;
  all.total = gone_;
  for (const CountedVersion& version : counted_) {
    all.versions.push_back({version.number, version.hash, version.read()});
    all.total += all.versions.back().calls;
  }
  all.reloads = went_live_;
  all.refused = refused_sources_;
  all.reverted = reverted_;
  all.candidates = candidates_;
  all.promoted = promoted_;
  all.candidates_reverted = candidates_reverted_;
  return all;
}

void PolicyCore::count_refusal() {
  const std::lock_guard lock(mutex_);
  ++refused_sources_;
}

}  // namespace triage::policy
