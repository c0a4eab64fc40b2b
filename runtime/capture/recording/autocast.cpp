// Autocast is a layer of the dispatcher: it casts the arguments of an operator, and calls the operator once more with
// itself left out. Which operators it has, and what it casts for them, is LibTorch's own affair; the second call shows
// it.
#include "runtime/capture/recording/autocast.h"

#include "runtime/capture/context.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/rules/arguments.h"
#include "runtime/capture/rules/rules.h"
#include "runtime/compat/autocast.h"

#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <memory>
#include <utility>
#include <vector>

namespace triage::capture {
namespace {

bool autocast_left_out(c10::DispatchKey key) { return c10::impl::tls_is_dispatch_key_excluded(key); }

/// Whether the tensors among the arguments are not the very same.
bool differ(const std::vector<c10::IValue>& a, const std::vector<c10::IValue>& b) {
  if (a.size() != b.size()) return true;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].isTensor() && b[i].isTensor()) {
      if (!a[i].toTensor().is_same(b[i].toTensor())) return true;
    } else if (a[i].isTensorList() && b[i].isTensorList()) {
      const auto x = a[i].toTensorVector(), y = b[i].toTensorVector();
      for (size_t k = 0; k < x.size(); ++k)
        if (k >= y.size() || !x[k].is_same(y[k])) return true;
    }
  }
  return false;
}

}  // namespace

/// While alive on a thread, looks at how a call of `op` goes on.
class AutocastWatch {
 public:
  explicit AutocastWatch(c10::OperatorName op) : op_(std::move(op)), previous_(context.autocast_watch) {
    context.autocast_watch = this;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(begin, end).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  }
  ~AutocastWatch() {
    at::removeCallback(handle_);
    context.autocast_watch = previous_;
  }
  AutocastWatch(const AutocastWatch&) = delete;
  AutocastWatch& operator=(const AutocastWatch&) = delete;

  bool seen = false;          // the call itself
  bool casts_inside = false;  // some operator that it is made of was called with other arguments than it was given
  bool called_again = false;
  std::vector<c10::IValue> again;  // the arguments of the second call

 private:
  struct AutocastCall {
    c10::optional<c10::OperatorName> op;
    std::vector<c10::IValue> arguments;
    bool cpu_left_out, cuda_left_out;
  };

  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
    if (context.autocast_watch) context.autocast_watch->enter(function);
    return nullptr;
  }
  static void end(const at::RecordFunction&, at::ObserverContext*) {
    if (context.autocast_watch && !context.autocast_watch->calls_.empty()) context.autocast_watch->calls_.pop_back();
  }

  void enter(const at::RecordFunction& function) {
    if (calls_.empty()) seen = function.operator_name() == op_;
    const auto inputs = function.inputs();
    AutocastCall call{function.operator_name(), std::vector<c10::IValue>(inputs.begin(), inputs.end()),
                      autocast_left_out(c10::DispatchKey::AutocastCPU),
                      autocast_left_out(c10::DispatchKey::AutocastCUDA)};
    if (!calls_.empty()) compare(calls_.back(), call);
    calls_.push_back(std::move(call));
  }

  void compare(const AutocastCall& outer, const AutocastCall& inner) {
    const bool from_autocast = outer.cpu_left_out != inner.cpu_left_out || outer.cuda_left_out != inner.cuda_left_out;
    if (!from_autocast || !inner.op || !(outer.op == inner.op)) return;
    if (calls_.size() > 1) {
      casts_inside |= differ(outer.arguments, inner.arguments);
    } else {
      called_again = true;
      again = inner.arguments;
    }
  }

  const c10::OperatorName op_;
  AutocastWatch* previous_;
  at::CallbackHandle handle_;
  std::vector<AutocastCall> calls_;  // those that run, the outermost first
};

namespace {

/// The argument that the second call had in the place of `given`. Only tensors are cast.
c10::IValue cast_argument(const c10::IValue& given, const c10::IValue& again, std::string& refusal) {
  if (given.isTensor() && again.isTensor()) return again;
  if (given.isTensorList() && again.isTensorList()) return again;
  if (given.isNone() != again.isNone()) refusal = "autocast adds an argument to it";
  return given;
}

}  // namespace

bool has_autocast(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) {
  for (const c10::DispatchKey key : {c10::DispatchKey::AutocastCPU, c10::DispatchKey::AutocastCUDA}) {
    if (autocast_left_out(key) || !op.hasKernelForDispatchKey(key)) continue;
    bool concerned = false;
    for_each_tensor(arguments, [&](const at::Tensor& tensor) { concerned |= tensor.key_set().has(key); });
    if (concerned) return true;
  }
  return false;
}

CastCall call_under_autocast(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const size_t count = op.schema().arguments().size();
  CastCall call{std::vector<c10::IValue>(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end()), ""};
  const AutocastWatch watch(op.operator_name());
  op.callBoxed(&stack);
  if (!watch.seen) {
    call.refusal = "LibTorch does not show calls of operators to observers";
  } else if (watch.casts_inside) {
    call.refusal = "it calls operators whose arguments autocast casts";
  } else if (watch.called_again) {
    if (watch.again.size() != count) call.refusal = "autocast changes its arguments";
    for (size_t i = 0; i < count && call.refusal.empty(); ++i)
      call.arguments[i] = cast_argument(call.arguments[i], watch.again[i], call.refusal);
  } else if (has_autocast(op, call.arguments)) {
    call.refusal = "autocast calls another operator instead";
  }
  return call;
}

// --- what the recorder makes of it

bool Recorder::casts() const { return compat::autocast_state() != autocast_; }

void Recorder::record_under_autocast(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                                     torch::jit::Stack& stack) {
  const CastCall call = call_under_autocast(op, stack);
  if (!call.refusal.empty())
    return capture::graph_break(Break::mode, "`" + base_name(op) + "` in an autocast scope: " + call.refusal,
                                "Call it outside of the scope, or cast its arguments: x:to(torch.bfloat16).");
  std::vector<c10::IValue> taken;
  for (size_t i = 0; i < arguments.size(); ++i) taken.push_back(append_cast(arguments[i], call.arguments[i]));
  if (differ(taken, call.arguments)) {  // an input is cast once; the recorder's alias of it autocast would cast again
    const c10::impl::ExcludeDispatchKeyGuard cast_already(c10::autocast_dispatch_keyset);
    stack = call.arguments;
    for (size_t i = 0; i < taken.size(); ++i)
      if ((taken[i].isTensor() && stack[i].isTensor()) || (taken[i].isTensorList() && stack[i].isTensorList()))
        stack[i] = taken[i];
    op.callBoxed(&stack);
  }
  sizes_.note_shape(op, taken);
  append(op, taken, stack);
}

/// `given` as the graph has it, with the casts that make `made` of it.
c10::IValue Recorder::append_cast(const c10::IValue& given, const c10::IValue& made) {
  if (given.isTensorList() && made.isTensorList()) {
    c10::List<at::Tensor> items = given.toTensorList().copy();
    for (size_t i = 0; i < items.size(); ++i)
      items.set(i, append_cast(items.get(i), made.toTensorList().get(i)).toTensor());
    return items;
  }
  if (!given.isTensor() || !made.isTensor() || !given.toTensor().defined()) return given;
  const at::Tensor &tensor = given.toTensor(), &cast = made.toTensor();
  if (tensor.scalar_type() == cast.scalar_type()) return given;
  if (tensors_.knows(cast)) return cast;  // autocast keeps what it made of weights
  const graph::Value* const value = tensors_.value_of(tensor);
  // To autocast an input is no weight, for the recorder's is an alias of it.
  const at::Tensor outside = tensors_.original(tensor);
  const bool weight = outside.defined() && outside.is_leaf() && outside.requires_grad();
  if (weight) {
    const auto known = leaf_casts_.find(value);
    if (known != leaf_casts_.end() && known->second.scalar_type() == cast.scalar_type()) return known->second;
  }
  static const auto to_dtype = c10::Dispatcher::singleton().findSchemaOrThrow("aten::to", "dtype");
  torch::jit::Stack results{cast};
  append(to_dtype, {given, cast.scalar_type(), false, false, c10::IValue()}, results);
  if (weight) leaf_casts_[value] = cast;
  return cast;
}

}  // namespace triage::capture
