#pragma once
#include <triage/capsule.h>

#include <functional>
#include <string>

#include "runtime/capsule/capsule.h"
#include "runtime/capsule/recording.h"
#include "runtime/random/sequence.h"

namespace triage::policy {

/// Repeats a call of a compiled function, in surroundings that are as the capsule says: front ends have such.
using ReplayFunction = std::function<std::string(const capsule::Json& facts, const capsule::RestoredTensors& tensors,
                                                 const ReplayOptions& options)>;
void register_replay_of_functions(ReplayFunction replay);

/// `sequence` goes on from where the random numbers of the recorded call began.
void set_numbers(random::Sequence& sequence, const capsule::Json& facts, const capsule::RestoredTensors& tensors);

/// `triage::replay` of a capsule that is loaded already. `file`: its name, for messages.
Replayed replay(const capsule::Capsule& capsule, const std::string& file, const ReplayOptions& options);

/// A script as it was before a call, the inputs of the call, and its params and state as the script takes them.
using UseOfScript =
    std::function<void(Script& script, const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& values)>;

/// Calls `use` with the script of a capsule, in surroundings that are as the capsule says. Throws what `replay` throws,
/// InputError for a capsule of a function, and what `use` throws. `limits`: of the load and of each call that `use`
/// makes.
void use_recorded_script(const capsule::Capsule& capsule, const std::string& file, const ReplayOptions& options,
                         const Limits& limits, const UseOfScript& use);

/// Saves what was recorded, and throws what the recording of it failed with.
void save_recorded(const RecordOptions& options, const capsule::CapsuleRecording::CapsuleRequest& whole,
                   const capsule::SavedTensors& tensors);

}  // namespace triage::policy
