#include "bindings/cli/calls/given.h"

#include <ATen/ATen.h>
#include <triage/error.h>
#include <triage/files.h>

#include <optional>
#include <utility>

#include "bindings/cli/calls/call.h"
#include "bindings/cli/calls/model_call.h"
#include "runtime/policy/host/host_calls.h"

namespace triage::cli {
namespace {

/// Calls `tensor` or `module` with what the file holds.
template <class Tensor, class Module>
void read(const std::string& text, c10::Device device, const Tensor& tensor, const Module& module) {
  const auto [name, file] = split_assignment(text, "--define");
  std::optional<at::Tensor> loaded;
  try {
    loaded = load_tensor(file).to(device);
  } catch (const FileError&) {
    if (!is_model_file(file)) throw;
  }
  if (loaded)
    tensor(name, *loaded);
  else
    module(name, load_model(file, device));
}

}  // namespace

void give(ScriptOptions& script, const std::vector<std::string>& texts, c10::Device device) {
  for (const std::string& text : texts)
    read(
        text, device,
        [&](const std::string& name, const at::Tensor& tensor) {
          script.host_tensors.push_back({name, tensor});
        },
        [&](const std::string& name, const torch::jit::Module& module) {
          script.host_functions.push_back(policy::module_function(name, module));
        });
}

void define_given(Runtime& runtime, const std::vector<std::string>& texts, c10::Device device) {
  for (const std::string& text : texts)
    read(
        text, device, [&](const std::string& name, const at::Tensor& tensor) { runtime.define_tensor(name, tensor); },
        [&](const std::string& name, const torch::jit::Module& module) { runtime.define_module(name, module); });
}

}  // namespace triage::cli
