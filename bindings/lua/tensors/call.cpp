#include "bindings/lua/tensors/call.h"

#include "bindings/lua/stack.h"
#include "bindings/lua/tensors/autograd.h"
#include "bindings/lua/tensors/convert.h"
#include "bindings/lua/tensors/half.h"
#include "bindings/lua/tensors/resolve.h"
#include "bindings/lua/tensors/tensor.h"

#include <c10/core/DefaultDtype.h>

#include <algorithm>

namespace triage::lua {
namespace {

/// A list of integers, of which some may stand in it as tensors.
std::vector<int64_t> plain_integers(const c10::IValue& list) {
  std::vector<int64_t> integers;
  for (const c10::IValue& item : list.toListRef())
    integers.push_back(item.isTensor() ? item.toTensor().item().toLong() : item.toInt());
  return integers;
}

/// Charges what a creating operator is about to allocate, before it does.
void charge_creation(lua_State* L, const Overload& overload, const torch::jit::Stack& stack) {
  int64_t elements = 1, width = 8;
  for (size_t i = 0; i < overload.params.size(); ++i) {
    const Param& param = overload.params[i];
    if (param.kind == ParamKind::dtype)
      width = static_cast<int64_t>(stack[i].isNone() ? 4 : c10::elementSize(stack[i].toScalarType()));
    if (param.kind != ParamKind::integers || param.name != "size") continue;
    for (int64_t size : plain_integers(stack[i]))
      if (size > 0 && __builtin_mul_overflow(elements, size, &elements)) elements = INT64_MAX;
  }
  if (elements <= 1) return;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(elements, width, &bytes)) bytes = INT64_MAX;
  charge(L, 0, static_cast<size_t>(bytes));
}

c10::IValue value_of(lua_State* L, const Overload& overload, const Binding& binding, size_t position,
                     const std::string& name) {
  const Param& param = overload.params[position];
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
void push_result(lua_State* L, const Overload& overload, const Binding& binding, const c10::IValue& value) {
  if (value.isTensor() && value.toTensor().defined()) {
    for (size_t i = 0; i < overload.params.size(); ++i) {
      if (!overload.params[i].written || binding.slots[i] == 0) continue;
      const at::Tensor* argument = test_tensor(L, binding.slots[i]);
      if (argument && argument->is_same(value.toTensor())) return lua_pushvalue(L, binding.slots[i]);
    }
  }
  push_ivalue(L, value);
}

/// An expanded tensor has as many elements as it says, for whoever reads or copies it: beyond the budget of memory that is
/// work for minutes, which no hook can stop.
void check_logical_sizes(lua_State* L, const torch::jit::Stack& stack, const std::string& name) {
  const size_t budget = context(L).limits.tensor_bytes;
  if (!budget) return;
  for (const c10::IValue& value : stack) {
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const at::Tensor& tensor = value.toTensor();
    if (static_cast<uint64_t>(tensor.numel()) > budget / tensor.element_size())
      throw LimitError(name + ": a tensor of " + std::to_string(tensor.numel()) +
                       " elements is more than the budget of tensor memory (" + std::to_string(budget >> 20) +
                       " MiB) would hold, expanded or not");
  }
}

/// Pooling divides; integers by -1 may end the process (and nobody pools integers).
void check_pooling(lua_State* L, const Overload& overload, const torch::jit::Stack& stack, const std::string& name) {
  if (!context(L).sandboxed || stack.empty() || !stack[0].isTensor() || !stack[0].toTensor().defined()) return;
  if (overload.handle.operator_name().name.rfind("aten::avg_pool", 0) == 0 &&
      at::isIntegralType(stack[0].toTensor().scalar_type(), true))
    throw std::invalid_argument(name + ": a policy pools floats; convert with x:to(torch.float32)");
}

/// Operators that cut a tensor into as many pieces as it has elements.
void check_pieces(lua_State* L, const Overload& overload, const torch::jit::Stack& stack, const std::string& name) {
  constexpr int64_t most = 100'000;
  if (!context(L).sandboxed || stack.size() < 2 || !stack[0].isTensor() || !stack[0].toTensor().defined()) return;
  const std::string& op = overload.handle.operator_name().name;
  const bool cuts = op == "aten::split" || op == "aten::unsafe_split" || op == "aten::unbind" ||
                    op == "aten::split_copy" || op == "aten::unbind_copy";
  if (!cuts) return;
  const bool unbind = op.rfind("aten::unbind", 0) == 0;
  const int64_t step = !unbind && stack[1].isInt() ? std::max<int64_t>(1, stack[1].toInt()) : 1;
  for (const int64_t size : stack[0].toTensor().sizes())
    if (size / step > most)
      throw LimitError(name + " would give " + std::to_string(size / step) + " tensors; a policy may ask for " +
                       std::to_string(most));
}

int invoke(lua_State* L, const Overload& overload, const Binding& binding, const std::string& name) {
  torch::jit::Stack stack;
  stack.reserve(overload.params.size());
  for (size_t i = 0; i < overload.params.size(); ++i) stack.push_back(value_of(L, overload, binding, i, name));
  if (overload.creates) charge_creation(L, overload, stack);
  check_logical_sizes(L, stack, name);
  check_pieces(L, overload, stack, name);
  check_pooling(L, overload, stack, name);
  try {
    call_at_any_width(overload.handle, stack);
  } catch (const c10::Error& error) {
    throw std::runtime_error(name + ": " + error.what_without_backtrace());
  }
  if (binding.requires_grad) {
    break_for_autograd("`requires_grad` of a new tensor");
    for (const c10::IValue& value : stack)
      if (value.isTensor()) value.toTensor().requires_grad_(true);
  }
  reserve(L, stack.size(), "too many results");
  for (const c10::IValue& value : stack) push_result(L, overload, binding, value);
  return static_cast<int>(stack.size());
}

int operator_function(lua_State* L) {
  const auto* op = static_cast<const Operator*>(lua_touserdata(L, lua_upvalueindex(1)));
  return call_operator(L, *op, 1, lua_gettop(L), lua_toboolean(L, lua_upvalueindex(2)) != 0);
}

int overload_function(lua_State* L) {
  const auto* overload = static_cast<const Overload*>(lua_touserdata(L, lua_upvalueindex(1)));
  Arguments arguments = Arguments::positional(1, lua_gettop(L));
  arguments.exact = true;
  Binding binding;
  const std::string& name = overload->schema().name();
  std::string why;
  if (!bind_arguments(L, *overload, arguments, binding, &why))
    throw std::invalid_argument(name + ": " + why + "\n  " + overload->signature());
  return invoke(L, *overload, binding, name);
}

std::string shown_name(const Operator& op, bool method) {
  if (op.name.rfind("aten::", 0) != 0) return op.name;
  return (method ? "x:" : "torch.") + op.base();
}

}  // namespace

int call_operator(lua_State* L, const Operator& op, int first, int count, bool method) {
  charge(L, 0);  // reading long lists of arguments takes time in which no hook runs
  std::string name = shown_name(op, method);
  Arguments arguments = Arguments::parse(L, first, count, method, name);
  Binding binding;
  const Overload& overload = resolve(L, op, arguments, binding, name);
  return invoke(L, overload, binding, name);
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

torch::jit::Stack run(const char* name, const char* overload, std::initializer_list<c10::IValue> arguments) {
  const Overload* found = find_overload(name, overload);
  if (!found) throw std::runtime_error(std::string("this LibTorch has no operator ") + name + "." + overload);
  torch::jit::Stack stack(arguments);
  call_at_any_width(found->handle, stack);
  return stack;
}

at::Tensor run_for_tensor(const char* name, const char* overload, std::initializer_list<c10::IValue> arguments) {
  return run(name, overload, arguments).at(0).toTensor();
}

void push_named_operator(lua_State* L, const std::string& name, bool method) {
  std::string qualified = name.find("::") == std::string::npos ? "aten::" + name : name;
  const Operator* op = find_operator(qualified);
  std::string shown = qualified.rfind("aten::", 0) == 0 ? (method ? "x:" : "torch.") + name : qualified;
  if (!op) {
    std::vector<std::string> close;
    for (std::string& candidate : close_operators(qualified))
      if (op_allowed(L, qualified.substr(0, qualified.rfind(':') + 1) + candidate))
        close.push_back(std::move(candidate));
    throw std::invalid_argument(shown + ": there is no such operator" + did_you_mean(close));
  }
  if (!op_allowed(L, qualified))
    throw std::invalid_argument(shown +
                                ": policies may not call this operator (it reaches files, raw memory or global state); "
                                "`triage exec` scripts and the host may");
  push_operator(L, *op, method);
}

void refuse_without_tensor(lua_State* L, int index, const char* method) {
  const std::string name = method ? method : "name";
  const std::string got = index == 0 || lua_isnone(L, index) ? "nothing" : describe(L, index);
  throw std::invalid_argument((method ? "x:" + name : "a method of tensors") + ": expected a tensor to work on, got " +
                              got + "; a method is called with ':', as in z:" + name + "(...)");
}

}  // namespace triage::lua
