// What calls leave behind: counts, RunInfo, and the trace.
#include <algorithm>
#include <chrono>
#include <exception>

#include "runtime/messages/trace_file.h"
#include "runtime/policy/attribution/flagged.h"
#include "runtime/policy/core.h"

namespace triage::policy {
namespace {

using std::chrono::nanoseconds;

/// Which outputs of `answer` are flags. `kept` holds them where no graph does.
const std::vector<bool>& flags_outputs_of(const Answer& answer, std::vector<bool>& kept) {
  if (answer.ran.entry) return answer.ran.entry->flags_outputs;
  if (answer.version) kept = answer.version->compiled.flags_outputs();
  return kept;
}

/// Errors of one kind mostly come in runs.
void count_errors(const std::vector<SampleError>& errors, FlagCounts& counts) noexcept {
  for (size_t begin = 0, end = 0; begin < errors.size(); begin = end) {
    while (end < errors.size() && errors[end].slot == errors[begin].slot) ++end;
    counts.add(errors[begin].slot, end - begin);
  }
}

Counters::Flagged count_samples(const FlaggedSamples& found, const AnsweredCall& call) {
  Counters::Flagged counts{static_cast<uint64_t>(found.samples)};
  if (found.errors.empty()) return counts;
  const RowPairs pairs(call, found.samples);
  int64_t last = -1;
  for (const SampleError& error : found.errors) {
    if (error.sample == last) continue;
    last = error.sample;
    ++counts.flagged;
    counts.repaired += pairs.differ(last);
  }
  return counts;
}

/// Nothing where no flags could be read.
std::optional<Counters::Flagged> count_flags(const AnsweredCall& call, Counters& counters) {
  const FlaggedSamples found = flagged_samples(call);
  if (found.elsewhere) counters.uncounted();
  if (!found.counted) return std::nullopt;
  const Counters::Flagged counts = count_samples(found, call);
  counters.flagged(counts);
  count_errors(found.errors, counters.flags());
  return counts;
}

void fill(RunInfo& info, const PolicyVersion& called, const Answer& answer, nanoseconds time,
          const std::optional<Counters::Flagged>& flagged) {
  const bool computed = answer.by != Answered::failed && answer.by != Answered::passed_through && answer.version;
  const PolicyVersion& version = computed ? *answer.version : called;
  info.version = version.number;
  info.hash = version.hash;
  info.answered = answer.by;
  info.form = computed ? answer.ran.form : CallForm::none;
  info.loops = computed && answer.ran.entry ? answer.ran.entry->executable->loops() : LoopTiers{};
  info.time = time;
  info.flagged = flagged ? static_cast<int64_t>(flagged->flagged) : -1;
  info.repaired = flagged ? static_cast<int64_t>(flagged->repaired) : -1;
  info.failure = answer.message;
}

}  // namespace

/// Never fails a call: where there is no memory for a statistic, it is lost.
std::optional<Counters::Flagged> PolicyCore::note_call(const PolicyVersion& called, CallBegin begin,
                                                       at::ArrayRef<at::Tensor> inputs, const RunOptions& options,
                                                       const Answer& answer) noexcept {
  const nanoseconds time = std::chrono::steady_clock::now() - begin;
  Counters& counters = *called.counters;
  const bool computed = answer.by != Answered::failed && answer.by != Answered::passed_through;
  counters.answered(answer.by, computed ? answer.ran.form : CallForm::none, time);
  if (answer.failure) counters.failed(*answer.failure);
  std::optional<Counters::Flagged> flagged;
  try {
    if (answer.by != Answered::failed) {
      std::vector<bool> kept;
      const std::vector<bool>& is_flags = flags_outputs_of(answer, kept);
      if (runtime_->options().count_flags)
        flagged = count_flags({inputs, answer.outputs, called.signature.inputs, answer.version->signature.outputs,
                               is_flags, options.donate},
                              counters);
      if (messages::trace_on()) flags_trace_.note(answer.outputs, is_flags);
    }
    if (options.info) fill(*options.info, called, answer, time, flagged);
  } catch (const std::exception&) {
  }
  return flagged;
}

CallStatistics PolicyCore::CountedVersion::read() const {
  CallStatistics calls = counters->read();
  calls.recompiles = compile_counts->recompiles.load(std::memory_order_relaxed);
  calls.graph_breaks = compile_counts->graph_breaks.load(std::memory_order_relaxed);
  return calls;
}

/// With mutex_ held. A version that is destroyed counts no more.
void PolicyCore::forget_unused_counts() const {
  std::erase_if(counted_, [this](const CountedVersion& version) {
    if (version.counters.use_count() > 1) return false;
    std::atomic_thread_fence(std::memory_order_acquire);  // with whoever dropped the other reference
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
