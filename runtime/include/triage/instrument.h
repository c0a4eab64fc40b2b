#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <triage/config.h>
#include <triage/tracked.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

/// Flags through a TorchScript model that knows nothing of them.
namespace triage {

/// What is expected somewhere and not recorded: NaN and Inf, or one of them, at the locations that match a glob pattern
/// (`*.attention*`; `*` also matches dots).
struct Benign {
  std::string location = "*";
  std::optional<Code> code = {};  ///< err::nan or err::inf; empty: both
};

struct InstrumentOptions {
  TrackOptions track = {};
  std::vector<Benign> benign = {};
  /// Only every n-th call looks (the first, the n+1st, ...); all others run the model as it is.
  int64_t every = 1;
  std::string method = "forward";
  std::optional<ErrorConfig> config = {};
};

/// A model with a look at the outputs of every submodule that holds parameters, and of the model itself. The model is not
/// changed, parameters and buffers are shared with it: what it gives is what it gives by itself, bit for bit (the same
/// operators run in the same order; where LibTorch's compiler fuses operators, it fuses none across a look).
///
/// The samples are dim 0 of the first tensor among the inputs. A tensor that a submodule returns, also within tuples, lists
/// and dictionaries, is looked at when it is floating and has as many rows; NaN and Inf are recorded for their samples at
/// the location of the submodule. An error that is passed on is recorded wherever it comes by; under the default
/// accumulation the first entry of a sample is where it began.
///
/// Calls are thread-safe, each has flags of its own. Copies share the model.
class Instrumented {
 public:
  using Kwargs = std::unordered_map<std::string, c10::IValue>;
  struct Result {
    c10::IValue output;                 ///< the model's own
    at::Tensor flags;                   ///< `(N, num_words)`; without entries where `checked` is false
    bool checked = true;                ///< this call was one of every n-th
    std::vector<std::string> unlooked;  ///< locations whose floating outputs do not have the samples in front
  };
  /// Throws InputError where no input tells how many samples there are, and what the model throws.
  Result operator()(std::vector<c10::IValue> inputs, const Kwargs& kwargs = {}) const;

  /// The modules that hold parameters, the model itself first.
  const std::vector<TrackedModule>& locations() const;
  /// Those whose calls cannot be seen, because the model never calls them (it uses their parameters by itself) or does so
  /// through an interface or in a fork.
  const std::vector<std::string>& unseen() const;

 private:
  friend Instrumented instrument(const torch::jit::Module& module, const InstrumentOptions& options);
  struct Plan;
  std::shared_ptr<const Plan> plan_;
};

/// Tracks the module and prepares the looks. Throws InputError for options that make no sense, or a method that is not there.
Instrumented instrument(const torch::jit::Module& module, const InstrumentOptions& options = {});

}  // namespace triage
