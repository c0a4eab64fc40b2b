#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

/// What programs are run on. The same name, batch size and layout always give the same bits.
namespace triage::parity {

using Tensors = std::vector<at::Tensor>;

/// `z` f32 (N, 7), `d` f64 (N, 5), `h` f16 (N, 6), `b` bf16 (N, 6), `q` f32 (N, 3, 5), `v` f32 (N): with NaN and Inf in
/// some rows. `y` f32 (N, 7) without. `i` int64 (N, 4): indices, some out of range. `c` int64 (N): error codes. `m`
/// bool (N). `f`, `g`: flags with up to 16 entries. `strided`: data with gaps between its elements.
at::Tensor input(const std::string& name, int64_t samples, bool strided);
Tensors inputs(const std::vector<std::string>& names, int64_t samples, bool strided);

inline Tensors both(std::pair<at::Tensor, at::Tensor> pair) { return {pair.first, pair.second}; }

}  // namespace triage::parity
