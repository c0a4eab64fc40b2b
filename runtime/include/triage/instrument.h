#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <triage/api.h>
#include <triage/config.h>
#include <triage/tracked.h>
#include <triage/value_statistics.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

/// Flags for a TorchScript model that does not use them.
namespace triage {

/// Expected values, which are not recorded: NaN and Inf, or one of them, at the locations that match a glob pattern
/// (`*.attention*`; `*` also matches dots).
struct Benign {
  std::string location = "*";
  std::optional<Code> code = {};  ///< err::nan or err::inf; empty: both
};

struct InstrumentOptions {
  TrackOptions track = {};
  std::vector<Benign> benign = {};
  /// Checks only every n-th call (the first, the n+1st, ...); the others run the model unchanged.
  int64_t every = 1;
  /// Also counts the values of these outputs and of those of modules without parameters (an activation, a softmax), of
  /// all calls that are checked; on the CPU by the one read that finds NaN and Inf.
  bool statistics = false;
  std::string method = "forward";
  std::optional<ErrorConfig> config = {};
};

/// A model with checks of the outputs of every submodule that holds parameters, and of the model itself. The original
/// model is unchanged and shares its parameters and buffers. The outputs are the same, bit for bit (the same operators
/// run in the same order; LibTorch's compiler fuses no operators across a check).
///
/// The samples are dim 0 of the first tensor among the inputs. A tensor that a submodule returns, also within tuples,
/// lists and dictionaries, is checked if it is floating and has as many rows; NaN and Inf are recorded for their
/// samples at the location of the submodule. An error is recorded at every submodule that passes it on; under the
/// default accumulation the first entry of a sample is the place where it began.
///
/// Calls are thread-safe, and each has its own flags. Copies share the model.
class TRIAGE_API Instrumented {
 public:
  using Kwargs = std::unordered_map<std::string, c10::IValue>;
  struct Result {
    c10::IValue output;                 ///< the model's own
    at::Tensor flags;                   ///< `(N, num_words)`; without entries if `checked` is false
    bool checked = true;                ///< this call was an n-th one
    std::vector<std::string> unlooked;  ///< locations whose floating outputs do not have the samples in dim 0
  };
  /// Throws InputError if no input gives the number of samples; exceptions of the model pass through.
  Result operator()(std::vector<c10::IValue> inputs, const Kwargs& kwargs = {}) const;

  /// The modules that hold parameters, the model itself first.
  const std::vector<TrackedModule>& locations() const;
  /// Modules whose calls cannot be checked, because the model never calls them (it uses their parameters directly), or
  /// calls them through an interface or in a fork.
  const std::vector<std::string>& unseen() const;

  /// With `statistics`: the values of all calls since it was made or reset, also of outputs that do not have the
  /// samples in dim 0; first the modules that come nearest to the limit of their dtype. Other threads may call the
  /// model meanwhile. Both throw InputError without `statistics`.
  std::vector<ValueStatistics> statistics() const;
  void reset_statistics() const;

 private:
  friend Instrumented instrument(const torch::jit::Module& module, const InstrumentOptions& options);
  struct Plan;
  std::shared_ptr<const Plan> plan_;
};

/// Tracks the module and inserts the checks. Throws InputError for invalid options or an unknown method.
TRIAGE_API Instrumented instrument(const torch::jit::Module& module, const InstrumentOptions& options = {});

}  // namespace triage
