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

/// As a text of whole numbers, which a program keeps as an argument of the operator: the count of open sizes; the count
/// of inputs, and of each its dtype, its rank and its sizes (-1 - n: open size n); the count of outputs, and of each
/// its dtype, the input that is on its device (-1: the CPU), its rank, and of each size whether it is a product, the
/// constant and the factors. triage/_fake.py reads it, too.
std::string text_of(const Promise& promise);

/// Learned by runs on made-up values, with the open sizes near `values`. Throws what output_metadata throws, and
/// PolicyError where a size depends on values, or is neither a sum nor a product of open sizes.
std::vector<OpenOutput> learn_outputs(const Policy& policy, const std::vector<OpenInput>& inputs,
                                      const std::vector<int64_t>& values);

/// The same for tensors of a program that is traced, whose sizes may be symbols.
std::string learn_form(const Policy& policy, at::TensorList inputs);

/// Throws PolicyError where the outputs are not what the program was told (`form`, of text_of) of such inputs: it would
/// read other memory.
void check_form(const Policy& policy, const std::string& form, at::TensorList inputs, at::TensorList outputs);

}  // namespace triage::python
