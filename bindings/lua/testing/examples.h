#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace triage::lua {

class LuaScript;

/// Something to call a policy with.
struct Example {
  std::string from;                // "the inputs given", "test \"two bad samples\"", "its declared types"
  std::vector<at::Tensor> inputs;  // in the order of the signature
  std::vector<at::Tensor> params;  // likewise
};

/// What the policy's own tests call it with. Throws what the script raises.
std::vector<Example> examples_of_tests(LuaScript& script);

}  // namespace triage::lua
