#pragma once
#include <ATen/core/Tensor.h>
#include <triage/front_end.h>

#include <optional>
#include <string>
#include <vector>

namespace triage::lua {

class LuaScript;

/// Something to call a policy with.
struct ExampleInputs {
  std::string from;                // "the inputs given", "test \"two bad samples\"", "its declared types"
  std::vector<at::Tensor> inputs;  // in the order of the signature
  std::vector<at::Tensor> params;  // likewise
  bool is_form = false;            // of many that the declared types allow: a policy may refuse it
};

/// What the policy's own tests call it with. Throws what the script raises.
std::vector<ExampleInputs> examples_of_tests(LuaScript& script);

constexpr double most_bytes_of_types = 1 << 30;  // of all inputs that are made
/// A batch made from the declared types, with some bad rows; nothing where an input has no declared type, or they take
/// more memory.
std::optional<ExampleInputs> example_of_types(const Signature& signature, std::vector<at::Tensor> params);

/// Of a batch that nobody asked for and that is run hundreds of times.
constexpr int64_t most_values_of_types = 1 << 20;
int64_t count_values(const std::vector<at::Tensor>& tensors);

/// Small batches of other forms that the declared types allow: named dims of size 1 and of odd sizes, the other
/// floating dtypes, "..." as no dim and as two. Without NaN and Inf.
std::vector<ExampleInputs> examples_of_forms(const Signature& signature, const std::vector<at::Tensor>& params);

/// Where nobody gives a batch to verify the policy with: those of its tests, one of its declared types, and their other
/// forms.
std::vector<ExampleInputs> examples_to_verify(LuaScript& script);

}  // namespace triage::lua
