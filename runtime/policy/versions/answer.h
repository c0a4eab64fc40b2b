#pragma once
#include "runtime/policy/attribution/positions.h"
#include "runtime/policy/capsules/decision_capsule.h"
#include "runtime/policy/ranges/violations.h"
#include "runtime/policy/state/state_of_call.h"
#include "runtime/policy/versions/version.h"

#include <ATen/core/Tensor.h>
#include <triage/statistics.h>

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace triage::policy {

/// What became of one call.
struct Answer {
  std::vector<at::Tensor> outputs;
  Answered by = Answered::failed;
  const PolicyVersion* version = nullptr;  // the last one that was asked
  capture::CallOutcome ran;                // how it computed the outputs
  std::optional<FailureKind> failure;      // of the version that should have answered, or of the call
  std::string message;                     // of that failure
  DecisionCapsules* capsules = nullptr;    // where a capsule goes if the call gets a line in the decision log
  NamedCapsule capsule = {};
  std::unique_ptr<StateOfCall> state = {};      // null where no version that was asked has state
  std::unique_ptr<Violations> violations = {};  // of declared ranges, by the version that was asked last; null: none

  std::vector<FirstPositions> positions = {};  // by that version

  /// The call begins with this state.
  void begin_with(KeptState kept) {
    state = std::make_unique<StateOfCall>();
    state->before = std::move(kept);
  }
  /// What it began with.
  KeptState began_with() const { return state ? state->before : nullptr; }

  void note_failure(const std::exception& error) {
    failure = kind_of(error);
    message = error.what();
  }

  /// Whether a version computed the outputs.
  bool computed() const noexcept { return by != Answered::failed && by != Answered::passed_through; }
  /// That one; `called` where none did.
  const PolicyVersion& version_or(const PolicyVersion& called) const noexcept {
    return computed() && version ? *version : called;
  }
  CallForm form() const noexcept { return computed() ? ran.form : CallForm::none; }
  /// What runs the fused loops of the graph that was run.
  LoopTiers loops() const { return ran.entry ? ran.entry->executable->loops() : LoopTiers{}; }
  /// Which outputs are flags.
  const std::vector<bool>& flags_outputs() const {
    if (ran.entry) return ran.entry->flags_outputs;
    if (version) flags_of_version = version->compiled.flags_outputs();
    return flags_of_version;
  }
  mutable std::vector<bool> flags_of_version = {};  // the last that were asked for, where no graph has them
};

}  // namespace triage::policy
