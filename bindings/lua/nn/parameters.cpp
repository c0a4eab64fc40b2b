// The parameters of layers, drawn as PyTorch's modules draw theirs: the table of layers (scripts/prelude/nn_*.lua) says
// how.
#include "bindings/lua/nn/nn.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/tensors/calls/convert.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/constants.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/recording/branch_guard.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/tensors/host_memory.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <limits>
#include <stdexcept>
#include <string>

namespace triage::lua {
namespace {

/// Before one is made: it may draw random numbers, which one graph cannot hold, and takes memory.
void prepare(lua_State* L, const std::vector<int64_t>& sizes) {
  capture::graph_break(capture::Break::training_step, "a new layer draws its weights",
                       "Create modules outside of the compiled function, and call them in it.");
  int64_t bytes = sizeof(double);
  for (int64_t size : sizes)
    if (size > 0 && __builtin_mul_overflow(bytes, size, &bytes)) bytes = std::numeric_limits<int64_t>::max();
  charge(L, 0, static_cast<size_t>(bytes));
  constexpr double nanoseconds_a_byte = 5;  // of drawing the numbers
  check_time(L, "a new layer", nanoseconds_a_byte * static_cast<double>(bytes));
}

at::TensorOptions read_options(lua_State* L, int dtype, int device, bool whole) {
  at::TensorOptions options;
  if (const auto wanted = test_dtype(L, dtype)) {
    if (!at::isFloatingType(*wanted) && !at::isComplexType(*wanted))
      throw std::invalid_argument("option 'dtype': expected a floating point dtype such as torch.float64, got " +
                                  describe(L, dtype));
    options = options.dtype(*wanted);
  } else if (!lua_isnoneornil(L, dtype)) {
    throw std::invalid_argument("option 'dtype': expected a floating point dtype such as torch.float64, got " +
                                describe(L, dtype));
  }
  if (whole) options = options.dtype(at::kLong);
  if (lua_type(L, device) == LUA_TSTRING)
    options = options.device(parse_device(lua_tostring(L, device)));
  else if (!lua_isnoneornil(L, device))
    throw std::invalid_argument("option 'device': expected a device such as \"cpu\", got " + describe(L, device));
  return options;
}

/// core.new_tensor(operation, how, sizes, dtype or nil, device or nil, a, b): "uniform" from a to b, "normal" of mean a
/// and deviation b, "constant" a, each a parameter; "buffer" of the constant a; "count": a buffer of whole numbers.
int new_tensor(lua_State* L) {
  const std::string operation = luaL_checkstring(L, 1), how = luaL_checkstring(L, 2);
  const std::vector<int64_t> sizes = check_integers(L, 3, operation.c_str());
  prepare(L, sizes);
  const c10::InferenceMode no_inference(false);
  const at::NoGradGuard no_grad;
  const at::TensorOptions options =
      on_behalf_of(operation.c_str(), [&] { return read_options(L, 4, 5, how == "count"); });
  const double a = luaL_optnumber(L, 6, 0), b = luaL_optnumber(L, 7, 0);
  at::Tensor tensor = at::empty(sizes, options);
  if (how == "uniform")
    tensor.uniform_(a, b);
  else if (how == "normal")
    tensor.normal_(a, b);
  else
    tensor.fill_(a);
  if (how != "buffer" && how != "count") tensor.requires_grad_();
  push_tensor(L, tensor);
  return 1;
}

/// core.writes_statistics(tensor, what): an operator is about to write to a buffer of a module.
int writes_statistics(lua_State* L) {
  const at::Tensor& tensor = check_tensor(L, 1);
  const std::string what = luaL_checkstring(L, 2);
  capture::BranchGuard::refuse_change(tensor, what);
  capture::ProtectInputs::refuse_change(tensor, what);
  return 0;
}

}  // namespace

void add_parameters(lua_State* L) {
  static const luaL_Reg functions[] = {
      {"new_tensor", guarded<new_tensor>}, {"writes_statistics", guarded<writes_statistics>}, {nullptr, nullptr}};
  luaL_setfuncs(L, functions, 0);
}

}  // namespace triage::lua
