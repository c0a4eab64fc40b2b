#include "bindings/lua/values/number.h"

#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/state.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/sizes/numbers.h"

#include <ATen/ATen.h>

#include <stdexcept>
#include <utility>

namespace triage::lua {
namespace {

/// `tensor` is undefined once the box was finalized.
struct NumberBox {
  at::Tensor tensor;
};

const char number_metatable = 0;  // its address is the registry key

NumberBox* test_number_box(lua_State* L, int index) {
  if (lua_type(L, index) != LUA_TUSERDATA || !lua_getmetatable(L, index)) return nullptr;
  lua_rawgetp(L, LUA_REGISTRYINDEX, &number_metatable);
  const bool same = lua_rawequal(L, -1, -2);
  lua_pop(L, 2);
  return same ? static_cast<NumberBox*>(lua_touserdata(L, index)) : nullptr;
}

void push_box(lua_State* L, at::Tensor tensor) {
  reserve(L, 0, "too many numbers");
  new (lua_newuserdatauv(L, sizeof(NumberBox), 0)) NumberBox{std::move(tensor)};
  lua_rawgetp(L, LUA_REGISTRYINDEX, &number_metatable);
  lua_setmetatable(L, -2);
}

int number_gc(lua_State* L) {
  if (NumberBox* box = test_number_box(L, 1)) box->tensor = at::Tensor();
  return 0;
}

}  // namespace

void set_number_metatable(lua_State* L) {
  lua_pushcfunction(L, guarded<number_gc>);
  lua_setfield(L, -2, "__gc");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &number_metatable);
}

bool is_whole_number(const at::Tensor& number) { return number.scalar_type() == at::kLong; }

const at::Tensor* test_symbolic(lua_State* L, int index) {
  const NumberBox* box = test_number_box(L, index);
  return box && box->tensor.defined() ? &box->tensor : nullptr;
}

const at::Tensor* test_number(lua_State* L, int index) {
  const at::Tensor* tensor = test_symbolic(L, index);
  return tensor && tensor->scalar_type() != at::kBool && capture::is_captured_number(*tensor) ? tensor : nullptr;
}

void push_number(lua_State* L, at::Tensor tensor) {
  if (!capture::is_captured_number(tensor)) return push_scalar(L, tensor.item());
  if (tensor.scalar_type() == at::kBool) {
    if (const auto truth = capture::known_truth(tensor)) return lua_pushboolean(L, *truth);
  }
  push_box(L, std::move(tensor));
}

void push_size(lua_State* L, const at::Tensor& tensor, int64_t dim) {
  auto* recorder = capture::Recorder::current();
  std::optional<at::Tensor> number;
  if (recorder) number = capture::record_size(tensor, dim);
  if (number) return push_number(L, std::move(*number));
  lua_pushinteger(L, tensor.size(dim));
}

void push_shape(lua_State* L, const at::Tensor& tensor) {
  if (auto* recorder = capture::Recorder::current()) recorder->sizes().read_rank(tensor);
  lua_createtable(L, static_cast<int>(tensor.dim()), 0);
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    push_size(L, tensor, dim);
    lua_rawseti(L, -2, static_cast<lua_Integer>(dim + 1));
  }
}

void push_numel(lua_State* L, const at::Tensor& tensor) {
  if (auto* recorder = capture::Recorder::current()) recorder->sizes().read_rank(tensor);
  lua_pushinteger(L, 1);
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    push_size(L, tensor, dim);
    lua_arith(L, LUA_OPMUL);
  }
}

void specialize_number(lua_State* L, int index) {
  const NumberBox* box = test_number_box(L, index);
  if (!box) return;
  index = lua_absindex(L, index);
  const at::Tensor tensor = box->tensor;
  if (!tensor.defined()) luaL_error(L, "this number was closed");
  capture::specialize(tensor);
  push_scalar(L, tensor.item());
  lua_replace(L, index);
}

bool is_whole(lua_State* L, int index) {
  if (const at::Tensor* symbolic = test_symbolic(L, index)) return is_whole_number(*symbolic);
  int whole = 0;
  lua_tointegerx(L, index, &whole);
  return whole && lua_type(L, index) == LUA_TNUMBER;
}

std::optional<at::Scalar> test_scalar(lua_State* L, int index) {
  if (const at::Tensor* symbolic = test_symbolic(L, index)) {  // whoever asks for the value goes by it
    const at::Tensor number = *symbolic;
    capture::specialize(number);
    return number.item();
  }
  if (lua_type(L, index) == LUA_TBOOLEAN) return at::Scalar(lua_toboolean(L, index) != 0);
  if (lua_type(L, index) != LUA_TNUMBER) return std::nullopt;
  if (lua_isinteger(L, index)) return at::Scalar(static_cast<int64_t>(lua_tointeger(L, index)));
  return at::Scalar(static_cast<double>(lua_tonumber(L, index)));
}

void push_scalar(lua_State* L, const at::Scalar& scalar) {
  if (scalar.isBoolean())
    lua_pushboolean(L, scalar.toBool());
  else if (scalar.isIntegral(false))
    lua_pushinteger(L, scalar.toLong());
  else if (scalar.isComplex())
    throw std::invalid_argument("Lua has no complex numbers; take the parts with torch.real(x) and torch.imag(x)");
  else
    lua_pushnumber(L, scalar.toDouble());
}

}  // namespace triage::lua
