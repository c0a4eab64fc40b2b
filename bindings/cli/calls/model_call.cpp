#include "bindings/cli/calls/model_call.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/jit/serialization/import.h>
#include <triage/error.h>

#include <algorithm>
#include <filesystem>

namespace triage::cli {

bool is_model_file(const std::string& path) {
  const std::string ending = std::filesystem::path(path).extension().string();
  return ending == ".pt" || ending == ".pth" || ending == ".ts";
}

torch::jit::Module load_model(const std::string& path, c10::Device device) {
  if (!std::filesystem::exists(path)) throw FileError(fmt::format("there is no file {}", path));
  try {
    return torch::jit::load(path, device);
  } catch (const c10::Error& error) {
    throw FileError(fmt::format("{} cannot be read as a TorchScript model (what torch.jit.save writes): {}", path,
                                error.what_without_backtrace()));
  }
}

namespace {

bool is_number(const c10::Type& type) {
  return type.kind() == c10::TypeKind::IntType || type.kind() == c10::TypeKind::FloatType ||
         type.kind() == c10::TypeKind::BoolType;
}

bool is_given(const c10::Argument& argument, const std::vector<std::string>& texts) {
  return std::any_of(texts.begin(), texts.end(),
                     [&](const std::string& text) { return text.rfind(argument.name() + '=', 0) == 0; });
}

/// The arguments of `forward` that the command line gives: tensors as inputs, numbers as params.
Signature signature_of(const c10::FunctionSchema& schema, const CallOptions& options) {
  Signature signature;
  for (const c10::Argument& argument : at::ArrayRef(schema.arguments()).slice(1)) {
    if (is_number(*argument.type()))
      signature.params.push_back({argument.name(), argument.default_value().value_or(c10::IValue())});
    else if (!argument.default_value() || is_given(argument, options.inputs))
      signature.inputs.push_back(argument.name());
  }
  return signature;
}

c10::IValue number_for(const c10::Argument& argument, const Params& params, const std::string& model) {
  for (const auto& [name, value] : params) {
    if (name != argument.name()) continue;
    if (!value.is_number())
      throw UsageError(fmt::format("--param {}: {} takes a number there, got {}", name, model, value.text()));
    const c10::Scalar& number = value.number();
    switch (argument.type()->kind()) {
      case c10::TypeKind::IntType:
        return number.toLong();
      case c10::TypeKind::BoolType:
        return number.toBool();
      default:
        return number.toDouble();
    }
  }
  if (!argument.default_value())
    throw UsageError(fmt::format("{} needs the number \"{}\"; give it as --param {}=NUMBER", model, argument.name(),
                                 argument.name()));
  return *argument.default_value();
}

}  // namespace

ModelCall prepare_model(const CallOptions& options) {
  if (!options.limits.empty())
    throw UsageError(
        fmt::format("--limits: {} is a TorchScript model, and these are limits of scripts", options.policy));
  const c10::Device device = parse_device(options.device);
  ModelCall call{load_model(options.policy, device), {}, {}};
  const auto forward = call.model.find_method("forward");
  if (!forward) throw FileError(fmt::format("{} has no method `forward`", options.policy));
  const c10::FunctionSchema& schema = forward->function().getSchema();
  const Signature signature = signature_of(schema, options);
  const Params params = parse_params(options.params, signature, options.policy);
  const Assignments given = match_inputs(options.inputs, signature.inputs, options.policy);
  for (const c10::Argument& argument : at::ArrayRef(schema.arguments()).slice(1)) {
    const auto source = std::find_if(given.begin(), given.end(),
                                     [&](const auto& assignment) { return assignment.first == argument.name(); });
    call.names.push_back(argument.name());
    if (source != given.end())
      call.arguments.emplace_back(read_input(source->second, device));
    else if (is_number(*argument.type()))
      call.arguments.push_back(number_for(argument, params, options.policy));
    else
      call.arguments.push_back(*argument.default_value());
  }
  return call;
}

}  // namespace triage::cli
