#pragma once
#include <ATen/core/Tensor.h>
#include <triage/config.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/diagnose/isolation/poison.h"
#include "runtime/diagnose/isolation/recording.h"

/// Whether a bad sample stays alone: a batch is run as it is, then with one sample after another made bad in every way
/// that its dtype knows, and the other samples of all outputs are compared with the first run, bit for bit (all NaN
/// count as one).
namespace triage::diagnose {

using Tensors = std::vector<at::Tensor>;

/// What is checked.
class IsolationSubject {
 public:
  virtual ~IsolationSubject() = default;
  /// The same random numbers in each call, and the state of a first call. Throws what it throws.
  virtual Tensors call(const Tensors& inputs) = 0;
  /// The call after the last one: with the state that this left.
  virtual Tensors call_next(const Tensors& inputs) { return call(inputs); }
  /// Whether it declares state.
  virtual bool has_state() const { return false; }
  /// As it was before its first call.
  virtual void restart() = 0;
  /// Known once it was called.
  virtual std::vector<std::string> output_names() = 0;
  virtual std::vector<bool> flags_outputs() = 0;
  virtual std::vector<bool> flags_inputs() { return {}; }
  /// What it calls the free codes.
  virtual CodeNames codes() { return {}; }
  /// The outputs, then the new state, as far as that is known.
  virtual Recording record(const Tensors& inputs) = 0;
};

struct IsolationInput {
  std::string name;
  at::Tensor tensor;
  bool has_samples = false;  // else it stays as it is
  bool is_flags = false;
};

/// A way in which an output is not isolated.
struct IsolationLeak {
  std::string input;  // that held the bad sample
  at::ScalarType dtype;
  Poison poison;
  bool later = false;         // not in the call with the bad sample: in the next one, which had none
  int64_t rows = 0;           // samples that, made bad so, changed others
  int64_t row = 0, last = 0;  // the first of them, and the last
  std::vector<int64_t> hurt;  // what it changed; empty where all samples share what changed
  std::string how;            // another form or an error; empty: other values
};

struct OutputIsolation {
  std::string name;
  at::Tensor clean;
  std::optional<int64_t> dim;  // of its samples
  bool is_flags = false;
  std::vector<IsolationLeak> leaks;
};

/// An operator that carries a bad sample to others, or nothing that has a name.
struct Crossing {
  std::optional<RecordedStep> step;
  std::string why_unnamed;  // where there is no step
  std::vector<std::string> outputs, poisons;
};

struct Isolation {
  int64_t samples = 0, rows = 0;  // in the batch; of them made bad
  size_t calls = 0;
  bool restarted = false;  // its calls depend on earlier ones, so each began anew
  std::vector<OutputIsolation> outputs;
  std::vector<Crossing> crossings;
  bool ok() const;
};

struct IsolationOptions {
  int64_t rows = 64;  // at most so many samples are made bad, spread over the batch
  std::function<void(size_t done, size_t all)> progress = {};
};

/// Throws InputError where there are not two samples, or no input that has any; what the clean batch throws; and Error
/// where the same batch does not give the same bits again.
Isolation check_isolation(IsolationSubject& subject, const std::vector<IsolationInput>& inputs,
                          const IsolationOptions& options = {});

}  // namespace triage::diagnose
