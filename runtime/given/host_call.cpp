#include "runtime/given/host_call.h"
#include "runtime/memory/overlap.h"
#include "runtime/messages/fork_safe_mutex.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/library.h>
#include <triage/error.h>

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace triage::given {
namespace {

constexpr const char *call_host = "triage::call_host", *call_module = "triage::call_module";

struct CalleeRegistry {
  messages::ForkSafeSharedMutex mutex;
  std::unordered_map<int64_t, std::weak_ptr<const Callee>> callees;
  int64_t next = 1;
};

// Never destroyed: graphs may run while other statics are going away.
CalleeRegistry& registry() {
  static auto* instance = new CalleeRegistry;
  return *instance;
}

std::string text(const graph::TensorMeta& form) {
  return fmt::format("{} {{{}}}", c10::toString(form.dtype), fmt::join(form.sizes, ", "));
}

void check_outputs(const Callee& callee, const Tensors& inputs, const Tensors& outputs) {
  const auto fail = [&](const std::string& what) {
    throw Error(fmt::format("`{}`, a {} of the host, {}", callee.name, callee.is_module ? "module" : "function", what));
  };
  for (size_t i = 0; i < outputs.size(); ++i)
    if (!outputs[i].defined()) fail(fmt::format("returned an undefined tensor as output {}; return a tensor", i + 1));
  if (callee.is_module) return;
  const Forms wanted = expected(callee, forms_of(inputs)), got = forms_of(outputs);
  const std::string hint = callee.shapes ? "its `shapes`" : "a function without `shapes`";
  if (wanted.size() != got.size())
    fail(fmt::format("returned {} outputs; {} promises {}. Return as many, or correct `shapes`", got.size(), hint,
                     wanted.size()));
  for (size_t i = 0; i < got.size(); ++i)
    if (wanted[i].dtype != got[i].dtype || wanted[i].sizes != got[i].sizes)
      fail(fmt::format("returned {} as output {}; {} promises {}. Return that, or correct `shapes`", text(got[i]),
                       i + 1, hint, text(wanted[i])));
}

/// What a graph makes is its own: backends may write to it, and nobody else does.
void separate(const Tensors& inputs, Tensors& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    at::Tensor& output = outputs[i];
    if (!output.has_storage()) continue;
    const bool is_lent = output.use_count() > 1 || output.storage().use_count() > 1;
    const bool cannot_train = output.is_inference() && !c10::InferenceMode::is_enabled();
    if (is_lent || cannot_train || shares_memory(output, inputs)) output = output.clone();
  }
}

Tensors call(at::TensorList inputs, int64_t number) {
  const std::shared_ptr<const Callee> callee = find(number);
  if (!callee)
    throw Error(fmt::format(
        "number {} is no function or module of a host in this process; a graph that calls one runs only in the process "
        "that defined it, and while a policy that was given it lives",
        number));
  const Tensors given = inputs.vec();
  Tensors outputs = callee->call(given);
  check_outputs(*callee, given, outputs);
  separate(given, outputs);
  return outputs;
}

}  // namespace

// For all devices, and as autograd sees it: what is called is recorded there as any code is.
TORCH_LIBRARY_FRAGMENT(triage, m) {
  m.def("call_host(Tensor[] inputs, int function) -> Tensor[]", TORCH_FN(call));
  m.def("call_module(Tensor[] inputs, int function) -> Tensor[]", TORCH_FN(call));
}

std::shared_ptr<const Callee> add(Callee callee) {
  CalleeRegistry& all = registry();
  const std::unique_lock lock(all.mutex);
  callee.number = all.next++;
  auto shared = std::make_shared<const Callee>(std::move(callee));
  std::erase_if(all.callees, [](const auto& entry) { return entry.second.expired(); });
  all.callees.emplace(shared->number, shared);
  return shared;
}

std::shared_ptr<const Callee> find(int64_t number) {
  CalleeRegistry& all = registry();
  const std::shared_lock lock(all.mutex);
  const auto found = all.callees.find(number);
  return found == all.callees.end() ? nullptr : found->second.lock();
}

c10::OperatorHandle operator_for(const Callee& callee) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(callee.is_module ? call_module : call_host, "");
}

bool is_host_call(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  return name == call_host || name == call_module;
}

std::string callee_name(const c10::IValue& number) {
  const auto callee = number.isInt() ? find(number.toInt()) : nullptr;
  return callee ? callee->name : "?";
}

const graph::Node* find_host_call(const graph::Graph& graph) {
  for (const auto& node : graph.nodes())
    if (is_host_call(node->op)) return node.get();
  return nullptr;
}

Forms forms_of(const Tensors& tensors) {
  Forms forms;
  for (const at::Tensor& tensor : tensors)
    forms.push_back({tensor.scalar_type(), tensor.sizes().vec(), tensor.device()});
  return forms;
}

Forms expected(const Callee& callee, const Forms& inputs) {
  if (callee.shapes) return callee.shapes(inputs);
  if (inputs.empty())
    throw InputError(fmt::format(
        "`{}`, a function of the host without `shapes`, was called without a tensor; its output is like its first "
        "input: pass one, or define it with `shapes`",
        callee.name));
  return {inputs.front()};
}

}  // namespace triage::given
