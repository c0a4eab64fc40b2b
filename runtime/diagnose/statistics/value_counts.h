#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <vector>

/// Counts of the values of a tensor, made in one read of its memory.
namespace triage::diagnose {

/// Values of a magnitude of the limit divided by this, or more, are near the limit.
constexpr double near_factor = 16;

struct ValueCounts {
  double least = std::numeric_limits<double>::infinity();  // of finite values
  double most = -std::numeric_limits<double>::infinity();
  uint64_t values = 0, zeros = 0, near_limit = 0, saturated = 0, nan = 0, inf = 0;

  void merge(const ValueCounts& more);
};

/// Floating or complex; of other tensors nothing is counted.
bool has_counted_values(const at::Tensor& tensor);
/// The dtype whose limit counts: of complex numbers that of their parts.
at::ScalarType counted_dtype(const at::Tensor& tensor);

/// Of memory of the CPU. Throws InputError if there is none to read.
ValueCounts count_values(const at::Tensor& tensor);

/// Of another device: seven numbers that stay there. Nothing waits for the device.
at::Tensor count_on_device(const at::Tensor& tensor);
/// Adds such counts of `values` values, and waits for their devices.
void merge_from_device(ValueCounts& counts, const std::vector<at::Tensor>& pending);

}  // namespace triage::diagnose
