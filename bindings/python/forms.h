#pragma once
#include <ATen/core/Tensor.h>
#include <triage/runtime.h>

#include <cstdint>
#include <string>
#include <vector>

/// What a policy returns for inputs whose sizes are open, as programs of torch.compile and torch.export have them.
namespace triage::python {

/// Open sizes have numbers. A size is fixed, or is one of them.
struct OpenSize {
  int64_t fixed = 0;
  int number = -1;
  friend bool operator==(const OpenSize&, const OpenSize&) = default;
};

struct OpenInput {
  at::ScalarType dtype;
  c10::Device device;
  std::vector<OpenSize> sizes;
  friend bool operator==(const OpenInput&, const OpenInput&) = default;
};

/// A size of an output by the open sizes: `constant` + the sum of factors[i] * open size i; of a product, `constant`
/// times those whose factor is 1.
struct SizeRule {
  bool is_product = false;
  int64_t constant = 0;
  std::vector<int64_t> factors;
  int64_t of(const std::vector<int64_t>& open) const;
};

struct OpenOutput {
  at::ScalarType dtype;
  c10::Device device;
  std::vector<SizeRule> sizes;
};

/// What a program was told: for such inputs, such outputs.
struct Promise {
  std::vector<OpenInput> inputs;
  std::vector<OpenOutput> outputs;
};
using Promises = std::vector<Promise>;

/// Learned by runs on made-up values, with the open sizes near `values`. Throws what output_metadata throws, and
/// PolicyError where a size depends on values, or is neither a sum nor a product of open sizes.
std::vector<OpenOutput> learn_outputs(const Policy& policy, const std::vector<OpenInput>& inputs,
                                      const std::vector<int64_t>& values);

/// Throws PolicyError where the outputs are not what a program was told of such inputs: it would read other memory.
void check_promises(const Policy& policy, const Promises& promises, at::TensorList inputs, at::TensorList outputs);

}  // namespace triage::python
