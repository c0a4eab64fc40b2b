#pragma once
#include <exception>

#include "runtime/policy/core/lineup.h"

namespace triage::policy {

class PolicyCore;

/// Some calls of a canary look at the rules: often enough, and rarely enough to cost nothing.
bool is_time_to_judge(uint64_t calls, const CanaryOptions& options);
/// Promotes or reverts the canary where its rules say so. One thread at a time; who comes meanwhile has it look once
/// more.
void judge_canary(PolicyCore& policy, const CandidateLineup& beside) noexcept;
/// It has failed a call that the live version answered.
void blame_canary(PolicyCore& policy, const CandidateLineup& beside, const std::exception& error) noexcept;

}  // namespace triage::policy
