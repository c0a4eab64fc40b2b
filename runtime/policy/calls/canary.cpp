#include "runtime/policy/calls/canary.h"

#include "runtime/policy/core/policy_core.h"
#include "runtime/policy/releases/releases.h"

namespace triage::policy {
namespace {

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

bool is_time_to_judge(uint64_t calls, const CanaryOptions& options) {
  return calls % 64 == 0 || calls == options.promote_after;
}

void judge_canary(PolicyCore& policy, const CandidateLineup& beside) noexcept {
  std::atomic<uint32_t>& asked = beside.comparison->judges;
  if (asked.fetch_add(1, std::memory_order_acq_rel) > 0) return;
  uint32_t seen;
  do {
    seen = asked.load(std::memory_order_acquire);
    try {
      apply_rules(policy, beside);
    } catch (const std::exception&) {  // no memory: the next look does it
    }
  } while (!asked.compare_exchange_strong(seen, 0, std::memory_order_acq_rel));
}

void blame_canary(PolicyCore& policy, const CandidateLineup& beside, const std::exception& error) noexcept {
  try {
    PolicyVersion& version = *beside.candidate->version;
    Comparison& comparison = *beside.comparison;
    comparison.note_failure(error.what());
    const uint64_t failures = comparison.failures.fetch_add(1, std::memory_order_acq_rel) + 1;
    policy.report_failure(version, error);
    const uint64_t limit = beside.candidate->canary.revert_if.failures;
    if (limit == 0 || failures < limit) return;
    const Source where = source_of(error, version.defined_at, version.path);
    const std::string rule = broken_rule(comparison.measure(), beside.candidate->canary).value_or("failures");
    policy.candidates().revert(beside.candidate, rule + ": " + error.what(), where);
  } catch (const std::exception&) {  // no memory: the next failure reverts
  }
}

}  // namespace triage::policy
