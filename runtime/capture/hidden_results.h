#pragma once
#include <ATen/core/Tensor.h>
#include <triage/front_end.h>

#include <string>
#include <vector>

/// What a script returns last (Script::call), and no host sees: masks of the outputs with a declared range, then first
/// positions.
namespace triage::capture {

inline size_t num_hidden(const Signature& signature) { return signature.num_ranges() + signature.positions.size(); }

inline void drop_hidden(const Signature& signature, std::vector<at::Tensor>& results) {
  results.resize(results.size() - num_hidden(signature));
}

/// "violated.z", "position.encoder.2", in their order.
inline std::vector<std::string> hidden_names(const Signature& signature) {
  std::vector<std::string> names;
  for (size_t i = 0; i < signature.output_ranges.size(); ++i)
    if (signature.output_ranges[i]) names.push_back("violated." + signature.outputs[i]);
  for (const std::string& location : signature.positions) names.push_back("position." + location);
  return names;
}

}  // namespace triage::capture
