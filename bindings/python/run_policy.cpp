// triage::run_policy: a policy as one operator of the programs of torch.compile and torch.export, with its gradient;
// and the plain call.
#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>
#include <triage/statistics.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/python/as_outside.h"
#include "bindings/python/autocast.h"
#include "bindings/python/forms.h"
#include "bindings/python/registry.h"
#include "bindings/python/saved_tensors.h"
#include "bindings/python/ticket.h"
#include "bindings/python/values.h"
#include "runtime/memory/overlap.h"
#include "runtime/messages/printable.h"

namespace triage::python {
namespace {

using Tensors = std::vector<at::Tensor>;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The operator as registered, by its C++ signature.
template <class Signature>
auto operation(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

/// A tensor that a class in Python implements, such as FakeTensor.
bool of_python(const at::Tensor& tensor) { return tensor.key_set().has(c10::DispatchKey::Python); }

/// Whether Python code sees each operator that is called: a TorchDispatchMode is on, or an input is no plain tensor. A
/// policy is then called as the one operator that it is for Python: its inner operators take what Python cannot pass on
/// (numbers as tensors).
bool is_seen_by_python(at::TensorList inputs) {
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Python) ||
         std::any_of(inputs.begin(), inputs.end(), of_python);
}

/// Errors of a program come as they are: nobody takes their text apart there.
template <class Function>
auto for_program(Function&& function) -> decltype(function()) {
  try {
    return function();
  } catch (const Error& error) {
    throw std::runtime_error(messages::printable(error.what()));  // Python takes no text that is not UTF-8
  }
}

/// What the program that is traced is told of the outputs.
std::string form_of(const std::string& key, at::TensorList inputs, const std::string& autocast) {
  return for_program([&] {
    const Policy policy = find_policy(key);
    if (inputs.empty() || inputs.size() != policy.signature().inputs.size())
      return std::string();  // triage/_fake.py says what is wrong
    try {
      return learn_form(policy, inputs, autocast);
    } catch (const Error&) {
      if (policy.signature().output_types.empty()) throw;
      return std::string();  // the declared types tell it
    }
  });
}

/// Tensors as compilers expect them of an operator: dense, and in memory of their own. (A policy may return an input.)
Tensors own(Tensors tensors, at::TensorList inputs) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i] = tensors[i].contiguous();
    if (shares_memory(tensors[i], inputs) || shares_memory(tensors[i], at::ArrayRef<at::Tensor>(tensors).slice(0, i)))
      tensors[i] = tensors[i].clone();
  }
  return tensors;
}

Tensors answer(const std::string& key, at::TensorList inputs, const std::string& autocast, const std::string& form) {
  const Policy policy = find_policy(key);
  const AutocastScope scope(autocast);
  const WithoutSavedTensorHooks kept;
  Tensors outputs = policy.run(inputs);
  if (!form.empty()) check_form(policy, form, inputs, outputs);
  return outputs;
}

/// `source` is of no use but to caches of compilers: two texts under one key are not one program.
Tensors run_policy(const std::string& key, at::TensorList inputs, const std::string& autocast, const std::string& form,
                   const std::string& /*source*/) {
  return for_program([&] {
    std::optional<AsOutside> above;
    if (!c10::InferenceMode::is_enabled()) above.emplace();
    return own(answer(key, inputs, autocast, form), inputs);
  });
}

/// The same, and last a ticket that holds what autograd recorded. `differentiable`: the inputs that have gradients, in
/// their order. `serial`: of the traced call, so that two equal ones are not one.
Tensors run_policy_train(const std::string& key, at::TensorList inputs, at::IntArrayRef differentiable,
                         const std::string& autocast, const std::string& form, int64_t /*serial*/) {
  return for_program([&] {
    const AsOutside above;
    const at::AutoGradMode recorded(true);
    ForwardCall call;
    Tensors given = inputs.vec();
    for (const int64_t i : differentiable) {
      at::Tensor& input = given.at(static_cast<size_t>(i));
      call.inputs.push_back(input = input.detach().requires_grad_());
    }
    call.outputs = answer(key, given, autocast, form);
    Tensors outputs;
    for (const at::Tensor& output : call.outputs) outputs.push_back(output.detach());
    outputs = own(std::move(outputs), inputs);
    outputs.push_back(make_ticket(std::move(call)));
    return outputs;
  });
}

/// The gradients of the differentiable inputs. `inputs` only tell their sizes to programs.
Tensors run_policy_backward(const at::Tensor& ticket, const c10::List<std::optional<at::Tensor>>& gradients,
                            at::TensorList inputs, at::IntArrayRef /*differentiable*/) {
  return for_program([&] {
    const AsOutside above;  // the first backward captures, too
    const ForwardCall& call = recorded_by(ticket);
    Tensors outputs, given;
    for (size_t i = 0; i < call.outputs.size(); ++i) {
      const std::optional<at::Tensor> gradient = gradients.get(i);
      if (!gradient || !gradient->defined() || !call.outputs[i].requires_grad()) continue;
      outputs.push_back(call.outputs[i]);
      given.push_back(*gradient);
    }
    variable_list found(call.inputs.size());
    if (!outputs.empty())
      found = torch::autograd::grad(outputs, call.inputs, given, /*retain_graph=*/true, /*create_graph=*/false,
                                    /*allow_unused=*/true);
    for (size_t i = 0; i < found.size(); ++i)
      if (!found[i].defined()) found[i] = at::zeros_like(call.inputs[i], at::MemoryFormat::Contiguous);
    given.insert(given.end(), inputs.begin(), inputs.end());
    return own(std::move(found), given);
  });
}

/// What a traced program has for a policy whose inputs have gradients.
struct PolicyGradient : torch::autograd::Function<PolicyGradient> {
  static variable_list forward(AutogradContext* ctx, const std::string& key, const std::vector<int64_t>& differentiable,
                               const std::string& autocast, const std::string& form, at::TensorList inputs) {
    static const auto op = operation<Tensors(const std::string&, at::TensorList, at::IntArrayRef, const std::string&,
                                             const std::string&, int64_t)>("triage::run_policy_train");
    static std::atomic<int64_t> traced_calls{0};
    at::AutoDispatchBelowADInplaceOrView below;
    Tensors outputs = op.call(key, inputs, differentiable, autocast, form, ++traced_calls);
    Tensors saved = inputs.vec();
    saved.push_back(outputs.back());
    outputs.pop_back();
    ctx->save_for_backward(saved);
    ctx->saved_data["differentiable"] = differentiable;
    Tensors constant;
    for (const at::Tensor& output : outputs)
      if (!output.is_floating_point() && !output.is_complex()) constant.push_back(output);
    ctx->mark_non_differentiable(constant);
    ctx->set_materialize_grads(false);
    return outputs;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    static const auto op = operation<Tensors(const at::Tensor&, const c10::List<std::optional<at::Tensor>>&,
                                             at::TensorList, at::IntArrayRef)>("triage::run_policy_backward");
    variable_list inputs = ctx->get_saved_variables();
    const at::Tensor ticket = inputs.back();
    inputs.pop_back();
    const std::vector<int64_t> differentiable = ctx->saved_data["differentiable"].toIntVector();
    c10::List<std::optional<at::Tensor>> given;
    for (const at::Tensor& gradient : gradients)
      given.push_back(gradient.defined() ? std::optional(gradient) : std::nullopt);
    const Tensors found = op.call(ticket, given, inputs, differentiable);
    constexpr size_t others = 4;  // key, differentiable, autocast, form
    variable_list result(others + inputs.size());
    for (size_t i = 0; i < found.size(); ++i) result[others + static_cast<size_t>(differentiable[i])] = found[i];
    return result;
  }
};

using RunPolicy = Tensors(const std::string&, at::TensorList, const std::string&, const std::string&,
                          const std::string&);

/// With real tensors, autograd records the operators of the policy. A traced program has one node for the policy and
/// its gradient, and is told the form of the outputs.
Tensors run_policy_autograd(const std::string& key, at::TensorList inputs, const std::string& autocast,
                            const std::string& form, const std::string& source) {
  const bool traced = std::any_of(inputs.begin(), inputs.end(), of_python);
  const std::string told = traced && form.empty() ? form_of(key, inputs, autocast) : form;
  std::vector<int64_t> differentiable;
  for (size_t i = 0; i < inputs.size() && at::GradMode::is_enabled(); ++i)
    if (inputs[i].requires_grad()) differentiable.push_back(static_cast<int64_t>(i));
  if (!differentiable.empty())
    return traced ? PolicyGradient::apply(key, differentiable, autocast, told, inputs)
                  : run_policy(key, inputs, autocast, told, source);
  if (!is_seen_by_python(inputs)) return run_policy(key, inputs, autocast, told, source);
  static const auto op = operation<RunPolicy>("triage::run_policy");
  at::AutoDispatchBelowADInplaceOrView below;
  return op.call(key, inputs, autocast, told, source);
}

Tensors refuse_second_derivative(const at::Tensor& ticket, const c10::List<std::optional<at::Tensor>>& gradients,
                                 at::TensorList inputs, at::IntArrayRef differentiable) {
  for (size_t i = 0; i < gradients.size() && at::GradMode::is_enabled(); ++i)
    if (const std::optional<at::Tensor> gradient = gradients.get(i);
        gradient && gradient->defined() && gradient->requires_grad())
      throw InputError(
          "A policy in a compiled program has no second derivative. Call it outside of the program "
          "(torch.compiler.disable(policy.__call__)), where gradients of gradients are right.");
  static const auto op = operation<Tensors(const at::Tensor&, const c10::List<std::optional<at::Tensor>>&,
                                           at::TensorList, at::IntArrayRef)>("triage::run_policy_backward");
  at::AutoDispatchBelowADInplaceOrView below;
  return op.call(ticket, gradients, inputs, differentiable);
}

/// A program keeps the autocast of the line that called the policy.
Tensors run_policy_autocast(const std::string& key, at::TensorList inputs, const std::string& autocast,
                            const std::string& form, const std::string& source) {
  static const auto op = operation<RunPolicy>("triage::run_policy");
  const std::string here = autocast.empty() ? autocast_text() : autocast;
  const c10::impl::ExcludeDispatchKeyGuard below(c10::autocast_dispatch_keyset);
  return op.call(key, inputs, here, form, source);
}

Tensors call_as_operator(const std::string& key, at::TensorList inputs) {
  static const auto op = operation<RunPolicy>("triage::run_policy");
  return op.call(key, inputs, "", "", "");
}

/// A tangent would be lost on the way.
void refuse_forward_mode(const std::string& key, at::TensorList inputs) {
  for (const at::Tensor& input : inputs)
    if (input.defined() && input._fw_grad(/*level=*/0).defined())
      throw InputError(
          c10::str("policy \"", key,
                   "\" was called with a tensor that has a tangent (torch.autograd.forward_ad, "
                   "torch.func.jvp): a policy has no forward-mode derivative. Take gradients by backward(), "
                   "or pass input.detach()."));
}

/// A plain call from Python. (A method of a TorchBind class takes twice as long to reach.)
Tensors call_policy(const std::string& key, at::TensorList inputs) {
  return for_python([&] {
    refuse_forward_mode(key, inputs);
    if (is_seen_by_python(inputs)) return call_as_operator(key, inputs);
    const WithoutSavedTensorHooks kept;
    return find_policy(key).run(inputs);
  });
}

/// Values of params that many calls have: what Python gives is read once. (An operator that takes an object of a
/// TorchBind class is slow to reach.)
int64_t bind(const Dict& values) {
  return for_python([&] { return bind_params(params_from(values)); });
}

/// The same with params; the second result is the number of the version that answered.
std::tuple<Tensors, int64_t> call_with_params(const std::string& key, at::TensorList inputs, int64_t params) {
  return for_python([&] {
    refuse_forward_mode(key, inputs);
    RunInfo info;
    RunOptions options;
    options.params = *bound_params(params);
    options.info = &info;
    const WithoutSavedTensorHooks kept;
    Tensors outputs = find_policy(key).run(inputs, options);
    return std::tuple(std::move(outputs), int64_t{info.version});
  });
}

int64_t live_version(const std::string& key) {
  return for_python([&] { return int64_t{find_policy(key).version().number}; });
}

[[noreturn]] void throw_transformed(const std::string& key) {
  throw InputError(
      c10::str("policy \"", key,
               "\" was called inside of torch.func.grad, vmap, jvp or another transform of torch.func, which cannot "
               "look into a policy. Call it on plain tensors: gradients by backward() or torch.autograd.grad, a "
               "batch as a whole instead of vmap."));
}

Tensors call_transformed(const std::string& key, at::TensorList /*inputs*/) {
  return for_python([&]() -> Tensors { throw_transformed(key); });
}
std::tuple<Tensors, int64_t> call_with_params_transformed(const std::string& key, at::TensorList /*inputs*/,
                                                          int64_t /*params*/) {
  return for_python([&]() -> std::tuple<Tensors, int64_t> { throw_transformed(key); });
}
Tensors run_transformed(const std::string& key, at::TensorList /*inputs*/, const std::string& /*autocast*/,
                        const std::string& /*form*/, const std::string& /*source*/) {
  return for_program([&]() -> Tensors { throw_transformed(key); });
}

TORCH_LIBRARY_FRAGMENT(triage, m) {
  // Two equal calls are not one: a policy may count, draw random numbers, and change between them. The tag says so.
  // Under activation checkpointing a program saves the random numbers of operators with this tag, by a device that it
  // does not find in a list of tensors: the operator with a gradient says it by a serial number.
  m.def("run_policy(str policy, Tensor[] inputs, str autocast=\"\", str form=\"\", str source=\"\") -> Tensor[]",
        {at::Tag::nondeterministic_seeded});
  m.def(
      "run_policy_train(str policy, Tensor[] inputs, int[] differentiable, str autocast, str form, "
      "int serial) -> Tensor[]");
  m.def("run_policy_backward(Tensor ticket, Tensor?[] gradients, Tensor[] inputs, int[] differentiable) -> Tensor[]");
  m.def("_set_reopener(int callback) -> ()", TORCH_FN(set_reopener));
  m.def("_call_policy(str policy, Tensor[] inputs) -> Tensor[]", TORCH_FN(call_policy));
  m.def("_bind_params(Dict(str, Any) values) -> int", TORCH_FN(bind));
  m.def("_drop_params(int number) -> ()", [](int64_t number) { drop_params(number); });
  m.def("_call_with_params(str policy, Tensor[] inputs, int params) -> (Tensor[], int)", TORCH_FN(call_with_params));
  m.def("_live_version(str policy) -> int", TORCH_FN(live_version));
}

TORCH_LIBRARY_IMPL(triage, CompositeExplicitAutograd, m) {
  m.impl("run_policy", TORCH_FN(run_policy));
  m.impl("run_policy_train", TORCH_FN(run_policy_train));
  m.impl("run_policy_backward", TORCH_FN(run_policy_backward));
}
TORCH_LIBRARY_IMPL(triage, Autograd, m) {
  m.impl("run_policy", TORCH_FN(run_policy_autograd));
  m.impl("run_policy_backward", TORCH_FN(refuse_second_derivative));
}
TORCH_LIBRARY_IMPL(triage, AutocastCPU, m) { m.impl("run_policy", TORCH_FN(run_policy_autocast)); }
TORCH_LIBRARY_IMPL(triage, AutocastCUDA, m) { m.impl("run_policy", TORCH_FN(run_policy_autocast)); }
TORCH_LIBRARY_IMPL(triage, FuncTorchDynamicLayerFrontMode, m) {
  m.impl("run_policy", TORCH_FN(run_transformed));
  m.impl("_call_policy", TORCH_FN(call_transformed));
  m.impl("_call_with_params", TORCH_FN(call_with_params_transformed));
}

}  // namespace
}  // namespace triage::python
