#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/diagnose/isolation/check.h"

/// The samples that a policy is verified with.
namespace triage::diagnose {

/// One sample: its row of each input, of size 1 in dim 0; undefined for inputs that all samples share.
struct TriedSample {
  std::string what;  // "one NaN in z"
  Tensors rows;
  bool is_given = false;  // it stands in the batch given, as it is
};
using TriedSamples = std::vector<TriedSample>;

/// A batch of samples, with the inputs that they share as these are.
Tensors batch_of(const std::vector<IsolationInput>& inputs, const TriedSample* begin, const TriedSample* end);
inline Tensors batch_of(const std::vector<IsolationInput>& inputs, const TriedSamples& samples) {
  return batch_of(inputs, samples.data(), samples.data() + samples.size());
}

/// The samples of the batch given, then one of its good samples made bad in every way that is known: special values of
/// each dtype, alone and in the whole sample; constants, permutations, other scales; `numbers` (of the script, and its
/// params) and their neighbours. Empty where no input has samples.
TriedSamples samples_to_try(const std::vector<IsolationInput>& inputs, const std::vector<double>& numbers);

/// How many elements its rows have.
size_t elements_of(const TriedSample& sample);
/// Whether it is without NaN and Inf.
bool is_good(const TriedSample& sample);

/// Values that a float of this dtype may hold and computations trip over, then near_numbers.
std::vector<double> special_values(at::ScalarType dtype, const std::vector<double>& numbers);
/// `numbers`, their neighbours in this dtype, and the same with the other sign.
std::vector<double> near_numbers(at::ScalarType dtype, const std::vector<double>& numbers);
/// Those that are integers, and the integers beside them, as far as the dtype holds them.
std::vector<int64_t> integers_near(at::ScalarType dtype, const std::vector<double>& numbers);

}  // namespace triage::diagnose
