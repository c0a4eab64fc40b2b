#include "runtime/policy/calls/pass_through.h"

#include <fmt/format.h>
#include <triage/error.h>
#include <triage/flags.h>

#include <algorithm>

namespace triage::policy {
namespace {

at::Tensor unknown_flags(const at::Tensor& like) {
  return err::push_scalar(err::new_(like), err::unknown, ErrorLocation::UNKNOWN, {err::error});
}

/// Throws the error being handled, with `why` it could not be answered, as a PolicyError.
[[noreturn]] void give_up(const PolicyVersion& version, const std::string& why) {
  const std::string tail =
      fmt::format("; on_error = pass_through cannot return outputs for policy '{}', because {}", version.name, why);
  try {
    throw;
  } catch (const Error& error) {
    throw PolicyError(error.what() + tail, error.source(), error.traceback());
  } catch (const std::exception& error) {
    throw PolicyError(error.what() + tail, {version.path, 0});
  }
}

}  // namespace

std::vector<at::Tensor> pass_through(const PolicyVersion& version, at::ArrayRef<at::Tensor> inputs) {
  const std::vector<std::string> names = version.known_signature().outputs;
  if (names.empty()) give_up(version, "its outputs are not known yet; name them in the script's `outputs`");
  const std::vector<std::string>& input_names = version.signature.inputs;
  const std::vector<bool> is_flags = version.compiled.flags_outputs();
  const auto batch =
      std::find_if(inputs.begin(), inputs.end(), [](const at::Tensor& input) { return input.dim() > 0; });
  std::vector<at::Tensor> outputs;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto same_name = std::find(input_names.begin(), input_names.end(), names[i]);
    if (same_name != input_names.end()) {
      outputs.push_back(inputs[static_cast<size_t>(same_name - input_names.begin())]);
    } else if (i < is_flags.size() && is_flags[i] && batch != inputs.end()) {
      outputs.push_back(unknown_flags(*batch));
    } else {
      give_up(version, fmt::format("its output '{}' is neither an input nor known to be flags", names[i]));
    }
  }
  return outputs;
}

}  // namespace triage::policy
