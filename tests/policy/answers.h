#pragma once
#include <ATen/ATen.h>
#include <triage/runtime.h>

#include <cmath>
#include <string>
#include <vector>

/// What tests of policies put in, and what they look at.
namespace triage::test {

/// `rows` samples, of which the first `bad` have a NaN.
inline at::Tensor batch(int64_t rows, int64_t bad) {
  at::Tensor z = at::ones({rows, 5});
  if (bad > 0) z.narrow(0, 0, bad).select(1, 2).fill_(std::nanf(""));
  return z;
}

inline float first(const at::Tensor& tensor) { return tensor.flatten()[0].item<float>(); }
inline float first(const std::vector<at::Tensor>& outputs) { return first(outputs.at(0)); }
inline float first(const Policy& policy, float of = 0.0f) { return first(policy.run({at::full({4, 2}, of)})); }

inline bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace triage::test
