// What policies get of the host: functions, tensors, modules.
#include <torch/csrc/jit/serialization/import.h>
#include <triage/error.h>
#include <triage/runtime.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/c/functions.h"
#include "bindings/c/handles.h"
#include "bindings/c/structs.h"
#include "bindings/c/tensors.h"
#include "bindings/c/thread_context.h"

namespace triage::c {
namespace {

constexpr size_t most_outputs = 16;

/// A function of the host, and what it gets as `user`.
struct HostCallback {
  std::string name;
  TriageFunction call, shapes;
  void* user;
  void (*free_user)(void* user);
  bool is_defined = false;  // until then, `user` is the host's

  HostCallback(std::string given_name, TriageFunction function, void* given_user, const TriageFunctionOptions& options)
      : name(std::move(given_name)),
        call(function),
        shapes(options.shapes),
        user(given_user),
        free_user(options.free_user) {}
  HostCallback(const HostCallback&) = delete;
  HostCallback& operator=(const HostCallback&) = delete;
  ~HostCallback() {
    if (!is_defined || !free_user) return;
    const InCallback inside;
    free_user(user);
  }
};

/// Calls it, and takes over what it returns. Throws where it says that it failed.
std::vector<DLManagedTensor*> call_host(const HostCallback& function, TriageFunction called, ReceivedTensors& outputs,
                                        const std::vector<DLManagedTensor*>& inputs) {
  std::array<DLManagedTensor*, most_outputs> room{};
  TriageFunctionCall call{};
  call.size = sizeof call;
  call.inputs = inputs.data();
  call.input_count = inputs.size();
  call.outputs = room.data();
  call.output_room = room.size();
  call.stream = context.stream;
  {
    const InCallback inside;
    called(&call, function.user);
  }
  const std::string error = call.error ? call.error : "";
  const auto is_input = [&](DLManagedTensor* output) {
    return output && std::find(inputs.begin(), inputs.end(), output) != inputs.end();
  };
  // What it has set is freed, however many it says that there are.
  const auto last = std::find_if(room.rbegin(), room.rend(), [](DLManagedTensor* output) { return output; });
  const auto set = static_cast<size_t>(room.rend() - last);
  const size_t count = std::min(std::max(call.output_count, set), room.size());
  std::vector<DLManagedTensor*> given(room.begin(), room.begin() + count);
  for (DLManagedTensor* output : given)
    if (!is_input(output)) outputs.add(output);
  const auto fail = [&](const std::string& why) {
    throw Misuse(fmt::format("function `{}` of the host {}", function.name, why));
  };
  if (call.error) fail("failed: " + (error.empty() ? "it gives no reason in `error`" : error));
  if (call.output_count > room.size())
    fail(fmt::format("says that it has {} outputs; there is room for {}", call.output_count, most_outputs));
  if (set > call.output_count)
    fail(fmt::format("has set outputs[{}], and says that it has {} outputs; set `output_count`", set - 1,
                     call.output_count));
  if (std::any_of(given.begin(), given.end(), is_input)) fail("returns one of its inputs; return a tensor of its own");
  return given;
}

std::vector<at::Tensor> run_host(const HostCallback& function, const std::vector<at::Tensor>& tensors) {
  const std::string what = fmt::format("input of function `{}`", function.name);
  const std::string returned = fmt::format("output of function `{}`", function.name);
  Lent inputs;
  for (size_t i = 0; i < tensors.size(); ++i) inputs.add(give(tensors[i], what.c_str(), i));
  ReceivedTensors outputs(returned.c_str());
  call_host(function, function.call, outputs, inputs.tensors());
  const at::ArrayRef<at::Tensor> taken = outputs.tensors();
  std::vector<at::Tensor> results(taken.begin(), taken.end());
  outputs.give_back();
  return results;
}

std::vector<graph::TensorMeta> shapes_of_host(const HostCallback& function,
                                              const std::vector<graph::TensorMeta>& inputs) {
  const std::string what = fmt::format("input of `shapes` of function `{}`", function.name);
  const std::string returned = fmt::format("output of `shapes` of function `{}`", function.name);
  std::vector<DlpackDescription> forms;
  for (size_t i = 0; i < inputs.size(); ++i) forms.emplace_back(inputs[i], what.c_str(), i);
  std::vector<DLManagedTensor*> given;
  for (DlpackDescription& form : forms) given.push_back(&form.managed);
  ReceivedTensors outputs(returned.c_str());
  const std::vector<DLManagedTensor*> results = call_host(function, function.shapes, outputs, given);
  std::vector<graph::TensorMeta> metas;
  for (size_t i = 0; i < results.size(); ++i) metas.push_back(form_of(results[i], returned.c_str(), i));
  return metas;
}

torch::jit::Module load_module(const std::string& file, const DLDevice& device) {
  if (!std::filesystem::exists(file)) throw FileError(fmt::format("there is no file {}", file));
  try {
    if (device.device_type == 0) return torch::jit::load(file);
    return torch::jit::load(file, device_of(device, "options->device"));
  } catch (const c10::Error& error) {
    throw FileError(fmt::format("{} cannot be read as a TorchScript module (what torch.jit.save writes): {}", file,
                                error.what_without_backtrace()));
  }
}

}  // namespace

TriageStatus define_function(TriageRuntime* runtime, const char* name, TriageFunction function, void* user,
                             const TriageFunctionOptions* options) {
  return guarded("define_function", [&] {
    const HandleUse definer(runtime);
    const TriageFunctionOptions given = options_of(options, "options");
    if (!function) throw Misuse("`function` is null; pass a function");
    auto host = std::make_shared<HostCallback>(std::string(text(name, "name")), function, user, given);
    FunctionOptions for_cpp;
    for_cpp.pure = choice(given.pure, 2, "options->pure");
    if (given.shapes)
      for_cpp.shapes = [host](const std::vector<graph::TensorMeta>& inputs) { return shapes_of_host(*host, inputs); };
    definer->define(
        host->name, [host](const std::vector<at::Tensor>& tensors) { return run_host(*host, tensors); },
        std::move(for_cpp));
    host->is_defined = true;
  });
}

TriageStatus define_tensor(TriageRuntime* runtime, const char* name, DLManagedTensor* tensor) {
  return guarded("define_tensor", [&] {
    ReceivedTensors taken("tensor");
    taken.add(tensor);
    const HandleUse definer(runtime);
    definer->define_tensor(std::string(text(name, "name")), taken.tensors()[0]);
  });
}

TriageStatus define_module(TriageRuntime* runtime, const char* name, const char* path,
                           const TriageModuleOptions* options) {
  return guarded("define_module", [&] {
    const HandleUse definer(runtime);
    const TriageModuleOptions given = options_of(options, "options");
    const std::string as(text(name, "name")), file(text(path, "path"));
    const bool training = choice(given.training, 2, "options->training");
    if (given.device.device_type != 0) device_of(given.device, "options->device");
    torch::jit::Module module = load_module(file, given.device);
    training ? module.train() : module.eval();
    definer->define_module(as, module);
  });
}

}  // namespace triage::c
