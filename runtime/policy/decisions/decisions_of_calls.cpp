// What a call puts into the decision log.
#include <triage/layout.h>
#include <triage/location.h>

#include <algorithm>
#include <utility>

#include "runtime/policy/decisions/decisions.h"

namespace triage::policy {
namespace {

/// Recovery hides no fault: what the live version failed is told, whatever answered. A canary answers as a live version
/// does.
bool has_fault(const Answer& answer) {
  return answer.failure || (answer.violations && answer.violations->count() > 0) ||
         (answer.by != Answered::live && answer.by != Answered::canary);
}

std::string bounded(std::string_view text, size_t longest) { return std::string(text.substr(0, longest)); }

const char* done_to(const FlaggedSample& sample, Answered by) {
  if (by == Answered::passed_through) return "passed_through";
  switch (sample.treatment) {
    case Treatment::repaired:
      return "repaired";
    case Treatment::out_of_range:
      return "out_of_range";
    case Treatment::kept:
      return "kept";
    default:
      return "not_compared";
  }
}

/// Where the errors that are listed stand first, without waiting for a device.
void add_positions(Decision& decision, const std::vector<FirstPositions>& positions) {
  size_t error = 0;
  for (const Decision::Sample& sample : decision.samples)
    for (; error < sample.errors_end; ++error) {
      const uint16_t slot = decision.errors[error];
      const std::string location = ErrorLocation::name(slot >> LOCATION_SHIFT);
      const auto code = static_cast<Code>(slot >> CODE_SHIFT & CODE_MASK);
      if (auto position = find_position(positions, location, sample.sample, code); !position.empty())
        decision.positions.emplace_back(error, std::move(position));
    }
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

}  // namespace

void note_decision(DecisionLog& log, const DecidedCall& call, Answer& answer) {
  const auto& [called, time, inputs, options, found, samples] = call;
  DecisionQueue& queue = DecisionQueue::of(log);
  if (samples.empty() && !has_fault(answer) && !queue.takes_clean(options.decision_id)) return;
  const PolicyVersion& version = answer.version_or(called);
  Decision decision;
  decision.time = std::chrono::system_clock::now() - std::chrono::duration_cast<std::chrono::microseconds>(time);
  decision.duration = time;
  decision.decision_id = bounded(options.decision_id, longest_id);
  decision.trace_id = bounded(options.trace_id, longest_id);
  decision.policy = called.name;
  decision.path = called.path;
  decision.hash = version.hash;
  decision.failure = bounded(answer.message, longest_failure);
  decision.failure_kind = answer.failure;
  decision.version = version.number;
  decision.live_version = called.number;
  decision.codes = version.signature.codes;
  decision.answered = answer.by;
  decision.form = answer.form();
  decision.batch = rows_of(inputs);
  decision.totals = called.counters->totals();
  decision.flagged = static_cast<int64_t>(samples.size());
  decision.repaired = std::count_if(samples.begin(), samples.end(),
                                    [](const auto& sample) { return sample.treatment == Treatment::repaired; });
  decision.full = found.full;
  if (answer.violations)
    for (const Violations::Output& output : answer.violations->outputs)
      if (output.count > 0)
        decision.violations.push_back({version.signature.outputs[output.index], static_cast<uint64_t>(output.count)});
  add_samples(decision, found, samples, options.sample_ids, queue.options().max_samples);
  const bool at_hand = std::all_of(answer.positions.begin(), answer.positions.end(),
                                   [](const FirstPositions& positions) { return is_dense_cpu(positions.at); });
  if (!answer.positions.empty() && at_hand) add_positions(decision, answer.positions);
  decision.capsule = std::move(answer.capsule.file);
  decision.unsaved = std::move(answer.capsule.unsaved);
  queue.note(std::move(decision));
}

}  // namespace triage::policy
