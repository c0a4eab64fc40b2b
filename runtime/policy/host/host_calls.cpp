#include "runtime/policy/host/host_calls.h"

#include <fmt/format.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <algorithm>

#include "runtime/capsule/recording.h"
#include "runtime/capture/c_locale.h"
#include "runtime/capture/graph_break.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/replay/trace_replayer.h"
#include "runtime/capture/tensors/host_memory.h"
#include "runtime/compat/readable_memory.h"
#include "runtime/flags/composites/known_rows.h"
#include "runtime/given/host_call.h"
#include "runtime/operators/untrusted.h"
#include "runtime/policy/loading.h"
#include "runtime/random/sequence.h"

namespace triage::policy {

namespace {

/// No error of a script engine passes here: policies that the host calls throw theirs as exceptions of triage.
template <class Call>
auto with_exceptions(const std::string& name, const Call& call) {
  try {
    return call();
  } catch (const std::exception&) {
    throw;
  } catch (...) {
    throw PolicyError("the function `" + name + "` of the host threw something that is no std::exception");
  }
}

}  // namespace

std::vector<at::Tensor> call_as_host(const std::string& name, const TensorFunction& fn,
                                     const std::vector<at::Tensor>& arguments) {
  const capture::HostLocale numbers;
  const Loading::Cancellable no_reload(nullptr);
  const random::DrawFrom of_host(nullptr);
  const operators::Untrusted trusted(nullptr);
  const flags::KnownRows rows(flags::KnownRows::Writes::unseen);
  std::vector<at::Tensor> results = with_exceptions(name, [&] { return fn(arguments); });
  for (const at::Tensor& result : results)
    if (result.defined() && compat::lacks_memory(result))
      throw PolicyError("the function `" + name +
                        "` of the host returned a tensor that has no memory for its elements (it was freed, made "
                        "smaller, or made of a null pointer)");
  return results;
}

HostFunction node_function(given::Callee callee) {
  const std::string name = callee.name;
  const bool is_module = callee.is_module;
  callee.call = [name, is_module, fn = std::move(callee.call)](const std::vector<at::Tensor>& arguments) {
    const capture::NotCaptured inside(false);
    std::vector<at::Tensor> results = call_as_host(name, fn, arguments);
    if (auto* recording = capsule::CapsuleRecording::current())
      recording->note_node_call({name, is_module, arguments, results});
    return results;
  };
  if (callee.shapes)
    callee.shapes = [name, shapes = std::move(callee.shapes)](const given::Forms& inputs) {
      return with_exceptions(name, [&] { return shapes(inputs); });
    };
  return {name, nullptr, given::add(std::move(callee))};
}

namespace {

/// One that was never told is as it will always be.
bool trains(const torch::jit::Module& module) {
  for (const torch::jit::Module& one : module.modules())
    if (one.hasattr("training") && one.is_training()) return true;
  return false;
}

/// As layers in place do. Its arguments may be inputs, which are the host's, and a graph does not know such a write.
bool may_write_to_arguments(const torch::jit::Module& module) {
  try {
    const auto graph = module.get_method("forward").graph()->copy();
    torch::jit::Inline(*graph);
    const torch::jit::AliasDb aliases(graph);
    const auto arguments = graph->inputs().slice(1);  // without the module itself
    return std::any_of(arguments.begin(), arguments.end(),
                       [&](const torch::jit::Value* argument) { return aliases.hasWriters(argument); });
  } catch (const c10::Error&) {  // it has an operator that the analysis does not know
    return true;
  }
}

std::vector<at::Tensor> tensors_of(const std::string& name, const c10::IValue& value) {
  if (value.isTensor()) return {value.toTensor()};
  if (value.isTensorList()) return value.toTensorVector();
  std::vector<at::Tensor> tensors;
  if (value.isTuple())
    for (const c10::IValue& element : value.toTupleRef().elements()) {
      if (!element.isTensor()) break;
      tensors.push_back(element.toTensor());
    }
  if (!value.isTuple() || tensors.size() != value.toTupleRef().elements().size())
    throw Error(
        fmt::format("`{}`, a module of the host, returned a value of type {}; policies take a tensor, or a tuple or "
                    "list of tensors: wrap the module in one that returns these",
                    name, value.type()->repr_str()));
  return tensors;
}

/// `module`: a handle, whose `forward` is not const.
std::vector<at::Tensor> call_module(const std::string& name, torch::jit::Module module,
                                    const std::vector<at::Tensor>& arguments) {
  auto* const synthetic = capture::SyntheticInputs::current();
  if (synthetic && trains(module)) {
    synthetic->stop();
    throw Error("`" + name +
                "` is a module of the host in training mode, and triage does not call it with synthetic inputs");
  }
  return tensors_of(name, module.forward({arguments.begin(), arguments.end()}));
}

}  // namespace

HostFunction pure_function(const std::string& name, TensorFunction fn, FunctionOptions options) {
  return node_function({name, std::move(fn), std::move(options.shapes)});
}

HostFunction module_function(const std::string& name, const torch::jit::Module& module) {
  if (!module.find_method("forward"))
    throw InputError(fmt::format("Runtime::define_module: the module '{}' has no method `forward`", name));
  given::Callee callee{name,
                       [name, module, copies = may_write_to_arguments(module)](std::vector<at::Tensor> arguments) {
                         if (copies)
                           for (at::Tensor& argument : arguments) argument = argument.clone();
                         return call_module(name, module, arguments);
                       }};
  callee.is_module = true;
  return node_function(std::move(callee));
}

}  // namespace triage::policy

namespace triage {
namespace {

size_t holders(const at::Tensor& tensor) {
  return tensor.use_count() + (tensor.has_storage() ? tensor.storage().use_count() : 0);
}

/// What the host keeps of the arguments, and of what it returns, is memory of the host.
std::vector<at::Tensor> call_noting_what_it_keeps(const HostFunction& function,
                                                  const std::vector<at::Tensor>& arguments) {
  std::vector<size_t> before;
  for (const at::Tensor& argument : arguments) before.push_back(holders(argument));
  std::vector<at::Tensor> results = policy::call_as_host(function.name, function.fn, arguments);
  const auto is_argument = [&](const at::Tensor& result) {
    return std::any_of(arguments.begin(), arguments.end(),
                       [&](const at::Tensor& argument) { return argument.is_same(result); });
  };
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto returned = static_cast<size_t>(std::count_if(
        results.begin(), results.end(), [&](const at::Tensor& result) { return result.is_same(arguments[i]); }));
    if (holders(arguments[i]) - returned > before[i]) capture::ProtectInputs::add(arguments[i]);
  }
  for (const at::Tensor& result : results)
    if (result.defined() && holders(result) > 2 && !is_argument(result)) capture::ProtectInputs::add(result);
  return results;
}

std::vector<at::Tensor> call_node(const given::Callee& callee, const std::vector<at::Tensor>& arguments) {
  const c10::OperatorHandle op = given::operator_for(callee);
  torch::jit::Stack stack{c10::List<at::Tensor>(arguments), callee.number};
  capture::call(op, stack);
  return stack.back().toTensorVector();
}

}  // namespace

void call_operator(const c10::OperatorHandle& op, torch::jit::Stack& stack) { capture::call(op, stack); }

void break_graph(const std::string& what, const std::string& hint) {
  capture::graph_break(capture::Break::reads_value, what, hint);
}

void materialize(const at::Tensor& tensor) { capture::materialize(tensor); }

std::vector<at::Tensor> call_host_function(const HostFunction& function, const std::vector<at::Tensor>& arguments) {
  if (function.callee) return call_node(*function.callee, arguments);
  for (const at::Tensor& argument : arguments) capture::materialize(argument);
  capture::graph_break(
      capture::Break::host_function, "`" + function.name + "` is a function of the host",
      "Call it before or after the policy. If its results depend only on its arguments, define it as pure "
      "(triage::FunctionOptions): it is then part of the graph.");
  if (auto* synthetic = capture::SyntheticInputs::current()) {
    synthetic->stop();
    throw Error("`" + function.name +
                "` is a function of the host, and triage does not call it with synthetic inputs; define it as pure, or "
                "declare the types of the policy's outputs where they must be known");
  }
  std::vector<at::Tensor> results = call_noting_what_it_keeps(function, arguments);
  if (auto* recording = capsule::CapsuleRecording::current()) recording->note_host_call(function.name, results);
  return results;
}

}  // namespace triage
