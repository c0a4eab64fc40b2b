#pragma once
#include "runtime/policy/candidates/candidate.h"
#include "runtime/policy/candidates/thread.h"
#include "runtime/policy/versions/answer.h"

#include <ATen/ThreadLocalState.h>
#include <triage/runtime.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace triage::policy {

/// Copies that nobody else writes to, with all that guards of graphs look at; a tensor that comes twice is copied once.
std::vector<at::Tensor> copied(at::ArrayRef<at::Tensor> tensors);
size_t bytes_of(at::ArrayRef<at::Tensor> tensors) noexcept;

/// A call that was answered, for the candidate to run on: all that the host may change or free is copied.
struct ShadowCall {
  CandidateThread::Room room;
  std::shared_ptr<Candidate> candidate;
  std::shared_ptr<Comparison> comparison;
  std::shared_ptr<const PolicyVersion> live;  // that answered
  std::vector<at::Tensor> inputs, outputs;
  std::vector<at::Tensor> params;  // of the candidate
  KeptState state;                 // before the call
  std::vector<bool> flags_outputs;
  std::chrono::nanoseconds time{0};
  bool timed = true;  // the live version captured nothing
  std::string decision_id;
  std::vector<std::string> sample_ids;
  at::ThreadLocalState thread;  // grad mode, inference mode and autocast of the caller
};

/// Runs the candidate on a call that was answered, and counts what differs. On the candidate thread. Functions of the
/// host are not called, and no random number of a real call is drawn.
void run_in_shadow(ShadowCall& call, const Limits& limits);
/// A call that the candidate was not given.
inline void count_dropped(Comparison& comparison) noexcept {
  comparison.dropped.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace triage::policy
