#include "bindings/lua/tensors/types/methods.h"

#include "bindings/lua/state/effects.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/tensors/anomaly.h"
#include "bindings/lua/tensors/autograd.h"
#include "bindings/lua/tensors/calls/call.h"
#include "bindings/lua/tensors/calls/convert.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/constants.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/number.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/recording/branch_guard.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/sizes/numbers.h"
#include "runtime/compat/readable_values.h"

#include <ATen/ATen.h>
#include <triage/compiler_config.h>

#include <string_view>

namespace triage::lua {
namespace {

void break_graph(const char* what, const char* hint) { capture::graph_break(capture::Break::reads_value, what, hint); }

/// The tensor that the running method was called on.
const at::Tensor& self(lua_State* L) {
  if (const at::Tensor* tensor = test_tensor(L, 1)) return *tensor;
  lua_Debug info;
  info.name = nullptr;
  if (lua_getstack(L, 0, &info)) lua_getinfo(L, "n", &info);
  refuse_without_tensor(L, 1, info.name);
}

int64_t check_dim(lua_State* L, const Argument& argument, const at::Tensor& tensor) {
  const int64_t dim = integer_argument(L, argument), rank = tensor.dim();
  if (dim < -rank || dim >= rank)
    throw std::out_of_range("Dimension out of range (expected to be in range of [" + std::to_string(-rank) + ", " +
                            std::to_string(rank - 1) + "], but got " + std::to_string(dim) + ")");
  return dim < 0 ? dim + rank : dim;
}

int push_integers(lua_State* L, at::IntArrayRef values) {
  push_ivalue(L, c10::IValue(values.vec()));
  return 1;
}

int size(lua_State* L) {
  const at::Tensor& tensor = self(L);
  if (lua_isnoneornil(L, 2))
    push_shape(L, tensor);
  else
    push_size(L, tensor, check_dim(L, {2, "x:size", "dim"}, tensor));
  return 1;
}

int dim(lua_State* L) {
  const at::Tensor& tensor = self(L);
  if (auto* recorder = capture::Recorder::current()) recorder->sizes().read_rank(tensor);
  lua_pushinteger(L, tensor.dim());
  return 1;
}

int numel(lua_State* L) {
  push_numel(L, self(L));
  return 1;
}

int stride(lua_State* L) {
  const at::Tensor& tensor = self(L);
  break_graph("`stride` reads the memory layout of a tensor", "Use operators, which take tensors of any strides.");
  if (lua_isnoneornil(L, 2)) return push_integers(L, tensor.strides());
  lua_pushinteger(L, tensor.stride(check_dim(L, {2, "x:stride", "dim"}, tensor)));
  return 1;
}

int is_contiguous(lua_State* L) {
  const at::Tensor& tensor = self(L);
  break_graph("`is_contiguous` reads the memory layout of a tensor",
              "Call x:contiguous(), which does nothing if the tensor is contiguous.");
  const TorchConstant* format = test_constant(L, 2);
  const bool given = !lua_isnoneornil(L, 2);
  if (given && (!format || format->kind != ConstantKind::memory_format))
    wrong_argument(L, {2, "x:is_contiguous", "memory_format"}, "a format such as torch.channels_last");
  lua_pushboolean(
      L, tensor.is_contiguous(given ? static_cast<at::MemoryFormat>(format->value) : at::MemoryFormat::Contiguous));
  return 1;
}

int element_size(lua_State* L) {
  lua_pushinteger(L, static_cast<lua_Integer>(self(L).element_size()));
  return 1;
}

int is_floating_point(lua_State* L) {
  lua_pushboolean(L, self(L).is_floating_point());
  return 1;
}

int is_complex(lua_State* L) {
  lua_pushboolean(L, self(L).is_complex());
  return 1;
}

int is_signed(lua_State* L) {
  lua_pushboolean(L, self(L).is_signed());
  return 1;
}

bool is_real_number(at::ScalarType dtype) { return at::isIntegralType(dtype, false) || at::isFloatingType(dtype); }

int item(lua_State* L) {
  const at::Tensor& tensor = self(L);
  if (tensor.numel() != 1)
    throw std::invalid_argument("x:item() takes a tensor of one element, got " + describe(L, 1) +
                                "; reduce it first, or use x:totable()");
  auto* recorder = capture::Recorder::current();
  const bool kept = recorder && is_real_number(tensor.scalar_type()) &&
                    (recorder->sizes().numbers.keep_items || get_compiler_config().capture_scalar_outputs);
  if (kept) {
    push_number(L, capture::record_item(tensor));
    return 1;
  }
  break_graph("`item` reads a value of a tensor",
              "Keep it a tensor: most operations accept a 0-dim tensor in place of a number. Or set "
              "triage.config.capture_scalar_outputs = true, which keeps the number in the graph.");
  push_scalar(L, tensor.item());
  return 1;
}

template <typename T>
void push_nested(lua_State* L, const T* data, at::IntArrayRef sizes, void (*push)(lua_State*, T)) {
  reserve(L, 0, "too many dimensions");
  if (sizes.empty()) return push(L, *data);
  int64_t inner = 1;
  for (int64_t size : sizes.slice(1)) inner *= size;
  constexpr size_t bytes_of_a_table = 64, bytes_of_a_value = 16;
  charge(L, bytes_of_a_table + static_cast<size_t>(sizes[0]) * bytes_of_a_value);
  lua_createtable(L, static_cast<int>(sizes[0]), 0);
  for (int64_t i = 0; i < sizes[0]; ++i) {
    push_nested<T>(L, data + i * inner, sizes.slice(1), push);
    lua_rawseti(L, -2, i + 1);
  }
}

/// Charges the nested tables of a tensor, its values as Lua has them, and the work: an empty one of sizes {1000000, 0}
/// has a million.
void charge_table(lua_State* L, const at::Tensor& tensor) {
  constexpr size_t bytes_of_table = 56, bytes_of_value = 16, most = size_t{1} << 60;
  size_t tables = 1, bytes = bytes_of_table;
  for (const int64_t size : tensor.sizes()) {
    if (__builtin_mul_overflow(tables, static_cast<size_t>(size), &tables) || tables > most / bytes_of_table) {
      bytes = most;
      break;
    }
    bytes += tables * (bytes_of_table + bytes_of_value);
  }
  const auto elements = static_cast<uint64_t>(tensor.numel());
  charge(L, std::min(bytes, most), elements * sizeof(double), elements);
}

int totable(lua_State* L) {
  at::Tensor tensor = self(L);
  break_graph("`totable` reads the values of a tensor", "Return the tensor, and read it after the compiled code.");
  charge_table(L, tensor);
  at::Tensor values = tensor.detach().resolve_neg().cpu();
  if (values.scalar_type() == at::kBool) {
    values = compat::readable_values(values);
    push_nested<bool>(L, values.data_ptr<bool>(), values.sizes(), [](lua_State* S, bool v) { lua_pushboolean(S, v); });
  } else if (at::isIntegralType(values.scalar_type(), true)) {
    values = compat::readable_values(values.to(at::kLong));
    push_nested<int64_t>(L, values.data_ptr<int64_t>(), values.sizes(),
                         [](lua_State* S, int64_t v) { lua_pushinteger(S, v); });
  } else if (values.is_floating_point()) {
    values = compat::readable_values(values.to(at::kDouble));
    push_nested<double>(L, values.data_ptr<double>(), values.sizes(),
                        [](lua_State* S, double v) { lua_pushnumber(S, v); });
  } else if (at::isQIntType(values.scalar_type())) {
    throw std::invalid_argument("x:totable(): Lua has no quantized numbers; take x:dequantize() or x:int_repr() first");
  } else {
    throw std::invalid_argument("x:totable(): Lua has no complex numbers; take the parts with torch.view_as_real(x)");
  }
  return 1;
}

/// What `x:to(...)` asks for, gathered from its positions and options.
struct Conversion {
  std::optional<at::ScalarType> dtype;
  std::optional<c10::Device> device;
  std::optional<at::MemoryFormat> memory_format;
  bool non_blocking = false, copy = false;
};

void read_target(lua_State* L, int index, Conversion& target) {
  const at::Tensor* const other = test_tensor(L, index);
  const bool device = other || lua_type(L, index) == LUA_TSTRING, dtype = other || test_dtype(L, index);
  if ((device && target.device) || (dtype && target.dtype))
    throw std::invalid_argument(std::string("x:to: the ") + (device && target.device ? "device" : "dtype") +
                                " is given twice, now as " + describe(L, index));
  if (dtype && !other) {
    target.dtype = *test_dtype(L, index);
  } else if (device && !other) {
    target.device = on_behalf_of("x:to", [L, index] { return parse_device(lua_tostring(L, index)); });
  } else if (other) {
    target.dtype = other->scalar_type();
    target.device = other->device();
  } else {
    throw std::invalid_argument(
        "x:to: expected a dtype such as torch.float32, a device such as \"cpu\", or a tensor, got " +
        describe(L, index));
  }
}

void read_option(lua_State* L, const std::string& key, Conversion& target) {
  const TorchConstant* constant = test_constant(L, -1);
  if (key == "dtype" || key == "device") {
    bool fits = key == "dtype" ? test_dtype(L, -1).has_value() : lua_type(L, -1) == LUA_TSTRING;
    if (!fits) throw std::invalid_argument("x:to: option '" + key + "' cannot be " + describe(L, -1));
    read_target(L, -1, target);
  } else if (key == "memory_format" && constant && constant->kind == ConstantKind::memory_format) {
    target.memory_format = static_cast<at::MemoryFormat>(constant->value);
  } else if (specialize_number(L, -1); (key == "copy" || key == "non_blocking") && lua_isboolean(L, -1)) {
    (key == "copy" ? target.copy : target.non_blocking) = lua_toboolean(L, -1);
  } else {
    throw std::invalid_argument("x:to: unknown option '" + key + "' or wrong value (" + describe(L, -1) +
                                "); options are dtype, device, copy, non_blocking, memory_format");
  }
}

int push_converted(lua_State* L, const at::Tensor& tensor, const Conversion& target) {
  c10::IValue format = target.memory_format ? c10::IValue(*target.memory_format) : c10::IValue();
  if (target.dtype && !target.device) {
    push_tensor(
        L, run_for_tensor(L, "aten::to", "dtype", {tensor, *target.dtype, target.non_blocking, target.copy, format}));
  } else {
    c10::IValue dtype = target.dtype ? c10::IValue(*target.dtype) : c10::IValue();
    c10::IValue device = target.device ? c10::IValue(*target.device) : c10::IValue();
    push_tensor(L, run_for_tensor(L, "aten::to", "dtype_layout",
                                  {tensor, dtype, c10::IValue(), device, c10::IValue(), target.non_blocking,
                                   target.copy, format}));
  }
  return 1;
}

int to(lua_State* L) {
  const at::Tensor& tensor = self(L);
  Conversion target;
  const int last = lua_gettop(L);
  if (last == 1) wrong_argument(L, {2, "x:to", "target"}, "a dtype, a device or a tensor");
  for (int i = 2; i <= last; ++i) {
    if (lua_type(L, i) != LUA_TTABLE || i != last) {
      read_target(L, i, target);
      continue;
    }
    lua_pushnil(L);
    while (lua_next(L, i)) {
      read_option(L, lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?", target);
      lua_pop(L, 1);
    }
  }
  return push_converted(L, tensor, target);
}

template <at::ScalarType dtype>
int to_dtype(lua_State* L) {
  Conversion target;
  target.dtype = dtype;
  return push_converted(L, self(L), target);
}

int cpu(lua_State* L) {
  Conversion target;
  target.device = c10::Device(c10::kCPU);
  return push_converted(L, self(L), target);
}

int cuda(lua_State* L) {
  Conversion target;
  auto index = static_cast<c10::DeviceIndex>(integer_argument(L, {2, "x:cuda", "device"}, -1));
  target.device = c10::Device(c10::kCUDA, index);
  return push_converted(L, self(L), target);
}

int requires_grad_(lua_State* L) {
  capture::BranchGuard::refuse_change(self(L), "`requires_grad_`");
  touch_autograd("`requires_grad_`");
  self(L).requires_grad_(lua_isnone(L, 2) || boolean_argument(L, {2, "x:requires_grad_", "requires_grad"}));
  ++context(L).epoch;  // captured graphs depend on it
  lua_settop(L, 1);
  return 1;
}

int retain_grad(lua_State* L) {
  touch_autograd("`retain_grad`");
  self(L).retain_grad();
  return 0;
}

struct BackwardOptions {
  c10::optional<bool> retain_graph;
  bool create_graph = false;
  std::vector<at::Tensor> inputs;
};

BackwardOptions read_backward_options(lua_State* L, int index) {
  BackwardOptions options;
  lua_pushnil(L);
  while (lua_next(L, index)) {
    const std::string key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
    specialize_number(L, -1);
    if (key == "retain_graph" && lua_isboolean(L, -1)) {
      options.retain_graph = lua_toboolean(L, -1) != 0;
    } else if (key == "create_graph" && lua_isboolean(L, -1)) {
      options.create_graph = lua_toboolean(L, -1);
    } else if (key == "inputs" && lua_istable(L, -1)) {
      for (lua_Integer i = 1; i <= static_cast<lua_Integer>(lua_rawlen(L, -1)); ++i) {
        lua_rawgeti(L, -1, i);
        options.inputs.push_back(check_tensor(L, -1));
        lua_pop(L, 1);
      }
    } else {
      throw std::invalid_argument(
          "x:backward: unknown option '" + key + "' or wrong value (" + describe(L, -1) +
          "); options are retain_graph, create_graph (booleans) and inputs (a list of tensors)");
    }
    lua_pop(L, 1);
  }
  return options;
}

/// x:backward(gradient, {retain_graph, create_graph, inputs})
int backward(lua_State* L) {
  refuse_in_selection(L, "`backward`");
  at::Tensor tensor = self(L);
  at::Tensor gradient;
  int options_index = 2;
  if (const at::Tensor* given = test_tensor(L, 2)) gradient = *given;
  if (gradient.defined() || lua_isnil(L, 2)) options_index = 3;
  at_most(L, options_index, "x:backward");
  BackwardOptions options;
  if (lua_type(L, options_index) == LUA_TTABLE)
    options = read_backward_options(L, options_index);
  else if (!lua_isnoneornil(L, options_index))
    wrong_argument(L, {options_index, "x:backward", options_index == 2 ? "gradient" : "options"},
                   options_index == 2 ? "a tensor" : "a table");
  check_backward(L, "`backward`", options.create_graph);
  check_gradients(L, "x:backward", {tensor}, gradient.defined() ? std::vector{gradient} : std::vector<at::Tensor>());
  if (options.inputs.empty())
    tensor.backward(gradient, options.retain_graph, options.create_graph);
  else
    tensor.backward(gradient, options.retain_graph, options.create_graph, at::TensorList(options.inputs));
  return 0;
}

}  // namespace

void add_tensor_methods(lua_State* L) {
  static const LimitedFunction methods[] = {{"size", guarded<size>, 2},
                                            {"dim", guarded<dim>, 1},
                                            {"ndimension", guarded<dim>, 1},
                                            {"numel", guarded<numel>, 1},
                                            {"nelement", guarded<numel>, 1},
                                            {"stride", guarded<stride>, 2},
                                            {"is_contiguous", guarded<is_contiguous>, 2},
                                            {"element_size", guarded<element_size>, 1},
                                            {"is_floating_point", guarded<is_floating_point>, 1},
                                            {"is_complex", guarded<is_complex>, 1},
                                            {"is_signed", guarded<is_signed>, 1},
                                            {"item", guarded<item>, 1},
                                            {"totable", guarded<totable>, 1},
                                            {"tolist", guarded<totable>, 1},
                                            {"to", guarded<to>, 4},
                                            {"type", guarded<to>, 4},
                                            {"float", guarded<to_dtype<at::kFloat>>, 1},
                                            {"double", guarded<to_dtype<at::kDouble>>, 1},
                                            {"half", guarded<to_dtype<at::kHalf>>, 1},
                                            {"bfloat16", guarded<to_dtype<at::kBFloat16>>, 1},
                                            {"byte", guarded<to_dtype<at::kByte>>, 1},
                                            {"char", guarded<to_dtype<at::kChar>>, 1},
                                            {"short", guarded<to_dtype<at::kShort>>, 1},
                                            {"int", guarded<to_dtype<at::kInt>>, 1},
                                            {"long", guarded<to_dtype<at::kLong>>, 1},
                                            {"bool", guarded<to_dtype<at::kBool>>, 1},
                                            {"cpu", guarded<cpu>, 1},
                                            {"cuda", guarded<cuda>, 2},
                                            {"requires_grad_", guarded<requires_grad_>, 2},
                                            {"retain_grad", guarded<retain_grad>, 1},
                                            {"backward", guarded<backward>, 3}};
  push_methods(L);
  set_limited(L, "x:", methods);
  lua_pop(L, 1);
}

}  // namespace triage::lua
