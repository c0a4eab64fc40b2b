#pragma once
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

#include "bindings/cli/calls/call.h"

/// Calls of TorchScript models, for commands that take one in the place of a policy.
namespace triage::cli {

/// Does the name say that the file holds a TorchScript model, not a policy?
bool is_model_file(const std::string& path);

/// Throws FileError for a file that holds none.
torch::jit::Module load_model(const std::string& path, c10::Device device);

struct ModelCall {
  torch::jit::Module model;
  std::vector<c10::IValue> arguments;  // of `forward`, in the order of its schema
  std::vector<std::string> names;      // theirs
};

/// Reads the model, tensors as inputs and numbers as params. Throws FileError for a file that holds none, UsageError
/// for arguments that do not fit.
ModelCall prepare_model(const CallOptions& options);

}  // namespace triage::cli
