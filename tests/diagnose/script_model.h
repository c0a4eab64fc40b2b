#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <utility>
#include <vector>

/// TorchScript models made from source, as a file would hold them.
namespace triage::testing {

using Children = std::vector<std::pair<std::string, torch::jit::Module>>;

inline torch::jit::Module script(const std::string& name, const std::string& source, const Children& children = {},
                                 const std::vector<std::pair<std::string, at::Tensor>>& parameters = {}) {
  torch::jit::Module module(name);
  for (const auto& [child, submodule] : children) module.register_module(child, submodule);
  for (const auto& [parameter, value] : parameters) module.register_parameter(parameter, value, /*is_buffer=*/false);
  module.define(source);
  return module;
}

inline torch::jit::Module linear(int64_t in, int64_t out) {
  return script("Linear", R"(
    def forward(self, x):
        return torch.linear(x, self.weight, self.bias)
  )",
                {}, {{"weight", at::randn({out, in})}, {"bias", at::randn({out})}});
}

inline torch::jit::Module relu() {
  return script("ReLU", R"(
    def forward(self, x):
        return torch.relu(x)
  )");
}

/// Linear, ReLU, Linear, as a Sequential.
inline torch::jit::Module feed_forward(int64_t size) {
  return script("Sequential", R"(
    def forward(self, x):
        return getattr(self, "2").forward(getattr(self, "1").forward(getattr(self, "0").forward(x)))
  )",
                {{"0", linear(size, 2 * size)}, {"1", relu()}, {"2", linear(2 * size, size)}});
}

/// Two blocks; the second takes a logarithm, which is NaN for negative numbers.
inline torch::jit::Module network() {
  return script("Net", R"(
    def forward(self, x, scale: float = 1.0):
        h = self.first.forward(x)
        if scale > 0.0:
            h = self.second.forward(h.log() * scale)
        return (h, {"hidden": h * 2.0})
  )",
                {{"first", feed_forward(4)}, {"second", feed_forward(4)}});
}

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.dtype() == b.dtype() &&
         at::equal(a.contiguous().view(at::kInt), b.contiguous().view(at::kInt));
}

}  // namespace triage::testing
