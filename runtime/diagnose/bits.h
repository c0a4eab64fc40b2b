#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

/// Results compared bit by bit; one NaN is like another.
namespace triage::diagnose {

/// Of tensors of one shape and dtype.
bool same_bits(const at::Tensor& a, const at::Tensor& b);
/// Which elements differ, bool in the sizes of both.
at::Tensor differing(const at::Tensor& a, const at::Tensor& b);

/// The first element where two tensors of one shape and dtype differ in bits.
struct BitDifference {
  int64_t row;  // of dim 0
  std::string a, b;
};
BitDifference first_difference(const at::Tensor& a, const at::Tensor& b);

/// "Float[3, 4] on cpu"
std::string kind_of(const at::Tensor& tensor);
/// Whether both have one dtype, shape and device.
bool same_kind(const at::Tensor& a, const at::Tensor& b);

}  // namespace triage::diagnose
