#pragma once
#include <ATen/core/Tensor.h>
#include <triage/front_end.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace triage::policy {

/// The samples of one call that are not within the declared ranges of its outputs (triage::OutputRange).
struct Violations {
  struct OutputViolation {
    size_t index;     // of the output
    at::Tensor rows;  // bool, (N): true for such samples
    int64_t count;    // -1: nobody has read the mask, which lies on another device; there may be none
  };
  std::vector<OutputViolation> outputs;

  /// Samples of which an output is out of its range; undefined where none of the masks lies on the CPU, or they differ
  /// in size.
  at::Tensor rows() const;
  /// Of all outputs; -1 where one was not read.
  int64_t count() const;
  /// Reads what was not read, which waits for the device. Whether there is a violation at all.
  bool read();
  /// "3 of 32 samples of 'z' (declared finite), 1 of 32 of 'score' (declared 0 to 1)"
  std::string text(const Signature& signature) const;
};

/// Takes the hidden results from the end of what a script or its graph returned (Script::call). Null, and nothing is
/// allocated, where no sample is out of range.
std::unique_ptr<Violations> take_violations(const Signature& signature, std::vector<at::Tensor>& outputs);

/// Each such sample gets an entry in all outputs of flags: NAN, INF or OUT_OF_BOUNDS, CRITICAL, at `output.<name>`. In
/// a full record it takes the place of a weaker entry.
void flag(const Violations& violations, const Signature& signature, const std::vector<bool>& is_flags,
          std::vector<at::Tensor>& outputs);
/// The rows of such samples in outputs of data that are named as inputs become those of the inputs.
void pass_rows_through(const Violations& violations, const Signature& signature, const std::vector<bool>& is_flags,
                       at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs);

/// The input that an output is named as; nothing where there is none.
std::optional<size_t> input_named(const Signature& signature, size_t output);

}  // namespace triage::policy
