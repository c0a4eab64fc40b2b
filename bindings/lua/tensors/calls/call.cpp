#include "bindings/lua/tensors/calls/call.h"

#include "bindings/lua/rewriter/habits/habits.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/table_fields.h"
#include "bindings/lua/tensors/autograd.h"
#include "bindings/lua/tensors/calls/convert.h"
#include "bindings/lua/tensors/calls/guarded_call.h"
#include "bindings/lua/tensors/calls/half.h"
#include "bindings/lua/tensors/calls/resolve.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/tensor.h"

#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/replay/trace_replayer.h"
#include "runtime/capture/rules/arguments.h"
#include "runtime/capture/rules/params.h"
#include "runtime/messages/debugging/verbose.h"

#include <string>
#include <utility>
#include <vector>

namespace triage::lua {
namespace {

constexpr int64_t free_bytes = 4096;  // results as small are counted when they are there

[[noreturn]] void refuse_operator(const std::string& name) {
  throw std::invalid_argument("`" + name + "` is not among the operators of policies; a trusted script may call it");
}

c10::IValue value_of(lua_State* L, const Overload& overload, const ArgumentBinding& binding, size_t position,
                     const std::string& name) {
  const OverloadParam& param = overload.params[position];
  auto what = [&] { return "`" + name + "` (argument '" + param.name + "')"; };
  if (static_cast<int>(position) == binding.gathered) {  // x:view(2, -1): the rest of the arguments are the list
    lua_createtable(L, static_cast<int>(binding.rest.size()), 0);
    for (size_t i = 0; i < binding.rest.size(); ++i) {
      lua_pushvalue(L, binding.rest[i]);
      lua_rawseti(L, -2, static_cast<lua_Integer>(i + 1));
    }
    c10::IValue list = to_ivalue(L, lua_gettop(L), param, what());
    lua_pop(L, 1);
    return list;
  }
  if (int index = binding.slots[position]) return to_ivalue(L, index, param, test_tensor(L, index) ? what() : name);
  return param.has_default ? param.default_value : c10::IValue();
}

/// Pushes a result; an argument that was written to and is handed back stays the same Lua value.
void push_result(lua_State* L, const Overload& overload, const ArgumentBinding& binding, const c10::IValue& value) {
  if (value.isTensor() && value.toTensor().defined()) {
    for (size_t i = 0; i < overload.params.size(); ++i) {
      if (!overload.params[i].written || binding.slots[i] == 0) continue;
      const at::Tensor* argument = test_tensor(L, binding.slots[i]);
      if (argument && argument->is_same(value.toTensor())) return lua_pushvalue(L, binding.slots[i]);
    }
  }
  push_ivalue(L, value);
}

/// Beside tensors of a GPU most operators take a number of the host (a param) for a tensor. Those of
/// Overload::one_device refuse it or copy it. Their numbers are made there, as a product of a tensor there and the
/// number: that copies no memory of the host, so that the call may be part of a CUDA graph.
void bring_numbers(lua_State* L, const Overload& overload, torch::jit::Stack& stack) {
  if (!overload.one_device || !stack[0].toTensor().defined() || stack[0].toTensor().is_cpu()) return;
  const auto tensor = [&](size_t i) { return stack[i].isTensor() ? stack[i].toTensor() : at::Tensor(); };
  const at::Tensor first = tensor(0);
  const bool chooses = overload.schema().name() == "aten::where";  // first the condition, then two alternatives
  for (size_t i = 1; i < stack.size(); ++i) {
    const at::Tensor number = tensor(i);
    if (!number.defined() || number.dim() != 0 || !number.is_cpu()) continue;
    const at::ScalarType dtype = at::result_type(chooses ? tensor(3 - i) : first, number);
    const at::Tensor one = run_for_tensor(
        L, "aten::ones", "", {std::vector<int64_t>(), dtype, c10::IValue(), first.device(), c10::IValue()});
    stack[i] = run_for_tensor(L, "aten::mul", "Tensor", {one, number});
  }
}

/// An expanded tensor has as many elements as it says, for whoever reads or copies it: beyond the budget of memory that
/// is work for minutes, which no hook can stop.
void check_logical_sizes(lua_State* L, const torch::jit::Stack& stack, const std::string& name) {
  const size_t budget = context(L).limits.tensor_bytes;
  if (!budget) return;
  for (const c10::IValue& value : stack) {
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const at::Tensor& tensor = value.toTensor();
    if (static_cast<uint64_t>(tensor.numel()) > budget / tensor.element_size())
      throw LimitError(name + ": a tensor of " + std::to_string(tensor.numel()) +
                       " elements exceeds the budget of tensor memory (" + std::to_string(budget >> 20) +
                       " MiB); an expanded tensor counts in full");
  }
}

/// Arguments that the checks look at: numbers that stand as tensors, and the memory of what is written to.
void materialize_arguments(const Overload& overload, const torch::jit::Stack& stack) {
  const auto is_tensors = [](ParamKind kind) {
    return kind == ParamKind::tensor || kind == ParamKind::tensors || kind == ParamKind::optional_tensors;
  };
  for (size_t i = 0; i < overload.params.size(); ++i)
    if (overload.writes || !is_tensors(overload.params[i].kind))
      capture::for_each_tensor(stack[i], [](const at::Tensor& tensor) { capture::materialize(tensor); });
}

/// Before ATen sees it: the arguments are within the contract, and the call within what is left of the budgets.
void check_call(lua_State* L, const Overload& overload, const torch::jit::Stack& stack, const std::string& name) {
  materialize_arguments(overload, stack);
  check_logical_sizes(L, stack, name);
  Context& own = context(L);
  if (by_contract(L)) {
    if (!overload.contract) refuse_operator(name);
    if (const auto wrong = operators::violation(*overload.contract, overload.schema(), stack, true))
      throw std::invalid_argument(name + ": " + *wrong);
  } else if (!overload.contract || !overload.creates) {
    return;
  }
  const int64_t bytes = operators::allocation_bound(*overload.contract, overload.schema(), stack);
  if (own.limits.tensor_bytes && bytes > free_bytes) charge(L, 0, static_cast<size_t>(bytes));
  if (own.deadline)
    check_time(L, name, static_cast<double>(operators::time_bound(*overload.contract, overload.schema(), stack)));
}

/// A result with its flags; of a list, each of its tensors.
void push_guarded_result(lua_State* L, const Overload& overload, const ArgumentBinding& binding,
                         const c10::IValue& value, const GuardedArguments& guards) {
  push_result(L, overload, binding, value);
  if (value.isTensor()) return guard_result(L, guards.flags_of(L, value.toTensor()));
  if (!value.isTensorList()) return;
  const std::vector<at::Tensor> tensors = value.toTensorVector();
  for (size_t i = 0; i < tensors.size(); ++i) {
    lua_rawgeti(L, -1, static_cast<lua_Integer>(i + 1));
    guard_result(L, guards.flags_of(L, tensors[i]));
    lua_rawseti(L, -2, static_cast<lua_Integer>(i + 1));
  }
}

/// Newer versions of LibTorch begin some messages with the operator's name, which stands before them here.
std::string message_of_call(const Overload& overload, const c10::Error& error) {
  const std::string message = messages::message_of(error);
  const std::string& name = overload.handle.operator_name().name;  // aten::mm
  const std::string repeated = name.substr(name.rfind(':') + 1) + ": ";
  return message.rfind(repeated, 0) == 0 ? message.substr(repeated.size()) : message;
}

int invoke(lua_State* L, const Overload& overload, const ArgumentBinding& binding, const std::string& name,
           GuardedArguments& guards) {
  torch::jit::Stack stack;
  stack.reserve(overload.params.size());
  const auto* recorder = capture::Recorder::current();
  for (size_t i = 0; i < overload.params.size(); ++i) stack.push_back(value_of(L, overload, binding, i, name));
  bring_numbers(L, overload, stack);
  check_call(L, overload, stack, name);
  if (!guards.empty()) guards.prepare(overload, binding, stack, name);
  capture::read_params_unless_recorded(recorder, overload.handle, stack);
  try {
    call_at_any_width(overload.handle, stack);
  } catch (const c10::Error& error) {
    throw std::runtime_error(name + ": " + message_of_call(overload, error));
  }
  if (binding.requires_grad) {
    break_for_autograd("`requires_grad` of a new tensor");
    for (const c10::IValue& value : stack)
      if (value.isTensor()) value.toTensor().requires_grad_(true);
  }
  reserve(L, stack.size(), "too many results");
  for (const c10::IValue& value : stack)
    guards.empty() ? push_result(L, overload, binding, value)
                   : push_guarded_result(L, overload, binding, value, guards);
  return static_cast<int>(stack.size());
}

/// As a script writes it: "torch.add" or "x:add" for "aten::add".
std::string shown_name(const std::string& qualified, bool method) {
  constexpr std::string_view aten = "aten::";
  if (qualified.rfind(aten, 0) != 0) return qualified;
  return (method ? "x:" : "torch.") + qualified.substr(aten.size());
}

/// `x.name(...)` in the script, where `x:name(...)` would pass on `x`.
bool is_called_with_dot(lua_State* L) {
  lua_Debug frame{};
  return lua_getstack(L, 0, &frame) && lua_getinfo(L, "n", &frame) && std::string_view(frame.namewhat) == "field";
}

int operator_function(lua_State* L) {
  const auto* op = static_cast<const Operator*>(lua_touserdata(L, lua_upvalueindex(1)));
  const bool method = lua_toboolean(L, lua_upvalueindex(2)) != 0;
  try {
    return call_operator(L, *op, 1, lua_gettop(L), method);
  } catch (const std::invalid_argument& error) {
    constexpr std::string_view told = "called with ':'";
    if (!method || !is_called_with_dot(L) || std::string_view(error.what()).find(told) != std::string_view::npos) throw;
    const std::string name = shown_name(op->name, method);
    throw std::invalid_argument(std::string(error.what()) + "; a method is called with ':', as in " + name + "(...)");
  }
}

int overload_function(lua_State* L) {
  const auto* overload = static_cast<const Overload*>(lua_touserdata(L, lua_upvalueindex(1)));
  Arguments arguments = Arguments::positional(1, lua_gettop(L));
  arguments.exact = true;
  GuardedArguments guards(L, arguments);
  ArgumentBinding binding;
  const std::string& name = overload->schema().name();
  std::string why;
  if (!bind_arguments(L, *overload, arguments, binding, &why))
    throw std::invalid_argument(name + ": " + why + "\n  " + overload->signature());
  return invoke(L, *overload, binding, name, guards);
}

}  // namespace

int call_operator(lua_State* L, const Operator& op, int first, int count, bool method) {
  charge(L, 0);  // reading long lists of arguments takes time in which no hook runs
  std::string name = shown_name(op.name, method);
  Arguments arguments = Arguments::parse(L, first, count, method, name);
  GuardedArguments guards(L, arguments);
  ArgumentBinding binding;
  const Overload& overload = resolve(L, op, arguments, binding, name);
  return invoke(L, overload, binding, name, guards);
}

void push_operator(lua_State* L, const Operator& op, bool method) {
  lua_pushlightuserdata(L, const_cast<Operator*>(&op));
  lua_pushboolean(L, method);
  lua_pushcclosure(L, guarded<operator_function>, 2);
}

void push_overload(lua_State* L, const Overload& overload) {
  lua_pushlightuserdata(L, const_cast<Overload*>(&overload));
  lua_pushcclosure(L, guarded<overload_function>, 1);
}

torch::jit::Stack run(lua_State* L, const Overload& overload, torch::jit::Stack arguments, const std::string& name) {
  check_call(L, overload, arguments, name);
  call_at_any_width(overload.handle, arguments);
  return arguments;
}

torch::jit::Stack run(lua_State* L, const char* name, const char* overload,
                      std::initializer_list<c10::IValue> arguments) {
  const Overload* found = find_overload(name, overload);
  if (!found) throw std::runtime_error(std::string("this LibTorch has no operator ") + name + "." + overload);
  return run(L, *found, arguments, name);
}

bool is_operator_function(lua_State* L, int index) { return lua_tocfunction(L, index) == guarded<operator_function>; }

at::Tensor run_for_tensor(lua_State* L, const char* name, const char* overload,
                          std::initializer_list<c10::IValue> arguments) {
  return run(L, name, overload, arguments).at(0).toTensor();
}

void push_named_operator(lua_State* L, const std::string& name, bool method) {
  std::string qualified = name.find("::") == std::string::npos ? "aten::" + name : name;
  const Operator* op = find_operator(qualified);
  const std::string shown = shown_name(qualified, method);
  const std::string hint = method ? rewriter::hint_of_method(name) : std::string(rewriter::hint_of_name(shown));
  if (!op && method && is_global_function(L, name))
    throw std::invalid_argument("tensors have no method '" + name + "', which is a function: write " + name +
                                "(x, ...)");
  if (!op) {
    std::vector<std::string> close;
    for (std::string& candidate : close_operators(qualified)) {
      const Operator* other = find_operator(qualified.substr(0, qualified.rfind(':') + 1) + candidate);
      if (other && may_call(L, *other)) close.push_back(std::move(candidate));
    }
    throw std::invalid_argument(shown + ": there is no such operator" +
                                (hint.empty() ? did_you_mean(close) : "; " + hint));
  }
  if (!may_call(L, *op) && !hint.empty())
    throw std::invalid_argument("`" + shown + "` is not among the operators of policies; " + hint);
  if (!may_call(L, *op)) refuse_operator(shown);
  push_operator(L, *op, method);
}

void refuse_without_tensor(lua_State* L, int index, const char* method) {
  const std::string name = method ? method : "name";
  const std::string got = index == 0 || lua_isnone(L, index) ? "nothing" : describe(L, index);
  throw std::invalid_argument((method ? "x:" + name : "a method of tensors") + ": expected a tensor to work on, got " +
                              got + "; a method is called with ':', as in z:" + name + "(...)");
}

}  // namespace triage::lua
