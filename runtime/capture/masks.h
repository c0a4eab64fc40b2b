#pragma once
#include <ATen/core/Tensor.h>
#include <triage/front_end.h>

#include <string>
#include <vector>

/// The masks of outputs with a declared range, which a script returns last (Script::call).
namespace triage::capture {

inline void drop_masks(const Signature& signature, std::vector<at::Tensor>& results) {
  results.resize(results.size() - signature.num_ranges());
}

/// "violated.z", in their order.
inline std::vector<std::string> mask_names(const Signature& signature) {
  std::vector<std::string> names;
  for (size_t i = 0; i < signature.output_ranges.size(); ++i)
    if (signature.output_ranges[i]) names.push_back("violated." + signature.outputs[i]);
  return names;
}

}  // namespace triage::capture
