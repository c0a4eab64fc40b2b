#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/policy/attribution/counters.h"

namespace triage::policy {

/// The tensors of one answered call.
struct AnsweredCall {
  at::ArrayRef<at::Tensor> inputs, outputs;
  const std::vector<std::string>& input_names;
  const std::vector<std::string>& output_names;  // may be fewer than outputs: the others have none
  const std::vector<bool>& flags_outputs;
  at::ArrayRef<size_t> donated;  // inputs whose values may be gone
  at::Tensor out_of_range = {};  // bool, (N): samples out of a declared range; undefined where there is none
};

/// A tensor whose values can be read as they lie, without waiting for a device.
bool is_dense_cpu(const at::Tensor& tensor);

struct SampleError {
  int64_t sample;
  uint16_t slot;  // as it stands in a record (triage/layout.h)
};

/// What outputs of flags say, as far as it can be read without waiting for a device.
struct FlaggedSamples {
  std::vector<SampleError> errors;  // by sample; empty, and not allocated, where all is well
  int64_t samples = 0;              // of the first such output
  uint64_t full = 0;                // of those samples: records without a free slot
  bool counted = false;             // there was such an output
  bool elsewhere = false;           // there was one on another device
};
FlaggedSamples flagged_samples(const AnsweredCall& call);
/// Whether flags may leave with the outputs of a call that `flagged_samples` cannot read.
bool leaves_unread(at::ArrayRef<at::Tensor> outputs, const std::vector<bool>& flags_outputs);

/// What a call did to a flagged sample.
enum class Treatment : uint8_t { repaired, out_of_range, kept, not_compared };

/// Which outputs may be compared with which inputs, row by row: an output belongs to the input of its name; without a
/// name, to the only input that has its sizes and dtype.
class RowPairs {
 public:
  RowPairs(const AnsweredCall& call, int64_t rows);
  /// Whether an output differs from its input in this row, bit for bit: a NaN that stayed is no difference.
  bool differ(int64_t row) const;
  /// What the call did to a flagged sample.
  Treatment treatment(int64_t row) const;
  /// Whether there is such an output at all, be it the input itself.
  bool any() const noexcept { return any_; }

 private:
  struct ComparedTensors {
    at::Tensor before, after;  // contiguous
    size_t row_bytes;
  };
  std::vector<ComparedTensors> pairs_;
  at::Tensor out_of_range_;
  bool any_ = false;
};

struct FlaggedSample {
  int64_t sample;
  size_t errors_end;  // its errors end there in FlaggedSamples::errors, where those of the next one begin
  Treatment treatment;
};
/// What `flagged_samples` and `treatments` would list, counted as it is read: no memory grows with the errors of a
/// batch.
struct FlaggedTotals : Counters::Flagged {
  bool counted = false, elsewhere = false;  // as in FlaggedSamples
};
/// `add` is told of each run of equal errors. Nothing, and nobody is told, where several outputs have flags: lists join
/// them.
std::optional<FlaggedTotals> count_flagged(const AnsweredCall& call,
                                           const std::function<void(uint16_t slot, uint64_t count)>& add);

/// In the order of the samples; empty, and not allocated, where all is well.
std::vector<FlaggedSample> treatments(const AnsweredCall& call, const FlaggedSamples& found);

}  // namespace triage::policy
