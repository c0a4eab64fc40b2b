#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <triage/files.h>
#include "runtime/files/formats.h"

namespace triage::files {

at::Tensor plain_values(const at::Tensor& tensor) {
  if (!tensor.defined()) throw Malformed("the tensor is undefined");
  if (tensor.is_quantized()) throw Malformed("the tensor is quantized; convert it first (dequantize())");
  if (tensor.layout() != at::kStrided) throw Malformed("the tensor is sparse; convert it first (to_dense())");
  if (tensor.is_meta()) throw Malformed("the tensor is on the meta device and has no values");
  at::Tensor values = tensor.detach().to(at::kCPU).resolve_conj().resolve_neg().contiguous();
  return values;
}

uint64_t checked_bytes(const std::vector<int64_t>& sizes, size_t element_size) {
  constexpr uint64_t limit = uint64_t{1} << 62;
  // LibTorch multiplies the sizes itself, so they must not overflow even where another one of them is 0.
  uint64_t bytes = element_size;
  bool empty = false;
  for (int64_t size : sizes) {
    if (size < 0) throw Malformed(fmt::format("the shape ({}) has a negative size", fmt::join(sizes, ", ")));
    if (size == 0) empty = true;
    uint64_t factor = size == 0 ? 1 : static_cast<uint64_t>(size);
    if (bytes > limit / factor)
      throw Malformed(fmt::format("the shape ({}) is too large for any memory", fmt::join(sizes, ", ")));
    bytes *= factor;
  }
  return empty ? 0 : bytes;
}

void normalize_bools(void* bytes, size_t count) {
  auto* values = static_cast<unsigned char*>(bytes);
  for (size_t i = 0; i < count; ++i) values[i] = values[i] != 0;
}

std::string describe_shape(at::IntArrayRef sizes) {
  return sizes.empty() ? "0-dim" : fmt::format("{}", fmt::join(sizes, "x"));
}

}  // namespace triage::files
