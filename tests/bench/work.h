#pragma once
// The policies that the tables measure, and what bounds each.
#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

namespace triage::bench {

using Tensors = std::vector<at::Tensor>;

struct Work {
  const char* source;
  const char* limit;  // "read", "copy", "softmax", "tanh": into a warm buffer
  void (*run_limit)(const at::Tensor& data, at::Tensor& warm);
};

/// As someone who uses triage would write them; tests/bench/against_torchguard.py has the same for TorchGuard.
const std::map<std::string, Work>& works();

/// Normal numbers; about five rows hold a NaN or an infinity.
at::Tensor noise(int64_t rows, int64_t columns);

constexpr int64_t shapes[][2] = {{32, 512}, {256, 1024}, {4096, 1024}};
/// Of tables with one shape.
constexpr int64_t rows = 256, columns = 1024;

}  // namespace triage::bench
