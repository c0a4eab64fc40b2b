#pragma once
#include <ATen/core/Tensor.h>
#include <triage/api.h>
#include <triage/runtime.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

/// Capsules: a call with all that it depended on in one file, which repeats it elsewhere. The record and replay of
/// torch.compile's troubleshooting tools, for policies and compiled functions.
///
/// A capsule holds the source, variables and globals that the function reads, params, inputs, random state, flags
/// configuration, locations, versions, and what came of the call. It is a `.pt` file, and data: reading one runs
/// nothing, and what a replay runs is held to the limits of policies, unless it is trusted. It holds personal data if
/// the inputs do.
///
/// `Diagnostics::replay_dir` writes one for each call that fails.
namespace triage {

struct RecordOptions {
  /// Where it goes; ends in `.pt`.
  std::string file;
  /// Only samples that the policy flags, of inputs and outputs whose first dimension is that of the batch. Policies
  /// whose samples depend on each other give other results for them.
  bool bad_rows = false;
  /// Names of inputs, outputs and variables of the script whose values are left out, besides Diagnostics::replay_mask.
  /// A replay has zeros in their place.
  std::vector<std::string> masked = {};
};

/// A call of `policy`, which is also written to a capsule, whether or not it fails. Donated inputs may have changed
/// when they are written. Throws what `run` throws, and FileError if the file cannot be written.
TRIAGE_API std::vector<at::Tensor> record(const Policy& policy, at::ArrayRef<at::Tensor> inputs,
                                          const RecordOptions& record, const RunOptions& options = {});

struct ReplayOptions {
  /// Empty: as recorded.
  std::string backend = {};
  /// The script may call every operator, and a function of a trusted script has the full Lua library.
  bool trusted = false;
  /// The target of `print` in the script. Default: standard output.
  std::function<void(const std::string&)> print = {};
};

/// What came of a replay.
struct Replayed {
  std::string name;        // of the policy or function
  bool same = false;       // the same bits, or the same error
  std::string recorded;    // "2 outputs", "PolicyError: repair.lua:3: ..."
  std::string difference;  // what is not as recorded; empty if nothing
  /// What the capsule lacks, and how this process differs from the one that recorded, where that may change results; a
  /// sentence each.
  std::vector<std::string> notes;
};

/// Repeats the call of a capsule in this process: the function alone, on its own copies. Process-wide settings (flags
/// configuration, stance) are those of the capsule meanwhile, so do not replay beside other work. Throws FileError for
/// a file that is no capsule or is damaged, and InputError if this process has other locations under the same ids.
TRIAGE_API Replayed replay(const std::string& file, const ReplayOptions& options = {});

}  // namespace triage
