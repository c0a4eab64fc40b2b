#include "bindings/lua/tensors/torch.h"

#include "bindings/lua/state/effects.h"
#include "bindings/lua/tensors/autograd.h"
#include "bindings/lua/tensors/calls/call.h"
#include "bindings/lua/tensors/creation.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/constants.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/guarded.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/recording/recorder.h"

#include <ATen/ATen.h>

#include <cfloat>
#include <limits>

namespace triage::lua {
namespace {

constexpr const char* core_key = "triage.core";

/// Names that PyTorch's Python has and the dispatcher has not.
struct OperatorAlias {
  const char* name;
  const char* operator_name;
};
constexpr OperatorAlias aliases[] = {{"cross_entropy", "cross_entropy_loss"}};

/// torch[name] for what is no field: the operator's function, which then becomes a field. Upvalue 1: prefix of the
/// names ("", "linalg_", "fft_", "special_").
int torch_index(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  std::string name = luaL_checkstring(L, 2);
  std::string prefix = lua_tostring(L, lua_upvalueindex(1));
  for (const OperatorAlias& alias : aliases)
    if (prefix.empty() && name == alias.name) name = alias.operator_name;
  push_named_operator(L, prefix + name, false);
  lua_pushvalue(L, 2);
  lua_pushvalue(L, -2);
  lua_rawset(L, 1);
  return 1;
}

/// Gives the table on top of the stack the operators whose names start with `prefix`.
void add_operators(lua_State* L, const char* prefix) {
  lua_newtable(L);
  lua_pushstring(L, prefix);
  lua_pushcclosure(L, guarded<torch_index>, 1);
  lua_setfield(L, -2, "__index");
  lua_pushliteral(L, "torch");
  lua_setfield(L, -2, "__metatable");
  lua_setmetatable(L, -2);
}

/// torch.ops.aten.add, torch.ops.triage.is_ok: upvalue 1 is the namespace.
int ops_index(lua_State* L) {
  std::string space = lua_tostring(L, lua_upvalueindex(1));
  push_named_operator(L, space + "::" + luaL_checkstring(L, 2), false);
  return 1;
}

int namespaces_index(lua_State* L) {
  luaL_checkstring(L, 2);
  lua_newtable(L);
  lua_newtable(L);
  lua_pushvalue(L, 2);
  lua_pushcclosure(L, guarded<ops_index>, 1);
  lua_setfield(L, -2, "__index");
  lua_pushliteral(L, "torch.ops");
  lua_setfield(L, -2, "__metatable");
  lua_setmetatable(L, -2);
  return 1;
}

int manual_seed(lua_State* L) {
  refuse_in_selection(L, "`torch.manual_seed`");
  const lua_Integer seed = integer_argument(L, {1, "torch.manual_seed", "seed"});
  capture::graph_break(capture::Break::seed, "`torch.manual_seed` sets the seed of the process",
                       "Seed before the compiled code.");
  at::manual_seed(static_cast<uint64_t>(seed));
  return 0;
}

/// Of the dtype, which is part of what a graph is made for.
at::ScalarType dtype_of_argument(lua_State* L, const char* name) {
  const at::Tensor* const tensor = find_data(L, 1);
  if (!tensor) wrong_argument(L, {1, name, "input"}, "a tensor");
  return tensor->scalar_type();
}

int is_floating_point(lua_State* L) {
  lua_pushboolean(L, at::isFloatingType(dtype_of_argument(L, "torch.is_floating_point")));
  return 1;
}

int is_complex(lua_State* L) {
  lua_pushboolean(L, at::isComplexType(dtype_of_argument(L, "torch.is_complex")));
  return 1;
}

int is_tensor(lua_State* L) {
  if (lua_isnone(L, 1)) wrong_argument(L, {1, "torch.is_tensor", "value"}, "a value");
  lua_pushboolean(L, test_tensor(L, 1) != nullptr);
  return 1;
}

/// torch.device("cuda", 0) -> "cuda:0": devices are strings, so that they compare as such.
int device(lua_State* L) {
  std::string text = text_argument(L, {1, "torch.device", "type"});
  if (!lua_isnoneornil(L, 2)) text += ":" + std::to_string(integer_argument(L, {2, "torch.device", "index"}));
  lua_pushstring(L, on_behalf_of("torch.device", [&] { return parse_device(text).str(); }).c_str());
  return 1;
}

int get_default_dtype(lua_State* L) {
  push_dtype(L, c10::typeMetaToScalarType(at::get_default_dtype()));
  return 1;
}

void set_number(lua_State* L, const char* key, double value) {
  lua_pushnumber(L, value);
  lua_setfield(L, -2, key);
}

template <typename T>
void push_float_limits(lua_State* L) {
  using Limits = std::numeric_limits<T>;
  lua_newtable(L);
  set_number(L, "max", static_cast<double>(Limits::max()));
  set_number(L, "min", static_cast<double>(Limits::lowest()));
  set_number(L, "eps", static_cast<double>(Limits::epsilon()));
  set_number(L, "tiny", static_cast<double>(Limits::min()));
  set_number(L, "smallest_normal", static_cast<double>(Limits::min()));
  lua_pushinteger(L, static_cast<lua_Integer>(sizeof(T) * 8));
  lua_setfield(L, -2, "bits");
}

int finfo(lua_State* L) {
  auto dtype = lua_isnone(L, 1) ? std::optional(c10::typeMetaToScalarType(at::get_default_dtype())) : test_dtype(L, 1);
  if (dtype == at::kFloat) return push_float_limits<float>(L), 1;
  if (dtype == at::kDouble) return push_float_limits<double>(L), 1;
  if (dtype == at::kHalf) return push_float_limits<at::Half>(L), 1;
  if (dtype == at::kBFloat16) return push_float_limits<at::BFloat16>(L), 1;
  throw std::invalid_argument("torch.finfo takes a floating point dtype such as torch.float32, got " + describe(L, 1));
}

template <typename T>
void push_integer_limits(lua_State* L) {
  lua_newtable(L);
  lua_pushinteger(L, static_cast<lua_Integer>(std::numeric_limits<T>::max()));
  lua_setfield(L, -2, "max");
  lua_pushinteger(L, static_cast<lua_Integer>(std::numeric_limits<T>::lowest()));
  lua_setfield(L, -2, "min");
  lua_pushinteger(L, static_cast<lua_Integer>(sizeof(T) * 8));
  lua_setfield(L, -2, "bits");
}

int iinfo(lua_State* L) {
  auto dtype = test_dtype(L, 1);
  if (dtype == at::kByte) return push_integer_limits<uint8_t>(L), 1;
  if (dtype == at::kChar) return push_integer_limits<int8_t>(L), 1;
  if (dtype == at::kShort) return push_integer_limits<int16_t>(L), 1;
  if (dtype == at::kInt) return push_integer_limits<int32_t>(L), 1;
  if (dtype == at::kLong) return push_integer_limits<int64_t>(L), 1;
  throw std::invalid_argument("torch.iinfo takes an integer dtype such as torch.int64, got " + describe(L, 1));
}

/// core.op("triage::push", "where")
int core_op(lua_State* L) {
  std::string name = luaL_checkstring(L, 1), overload = luaL_optstring(L, 2, "");
  const Overload* found = find_overload(name, overload);
  if (!found) throw std::invalid_argument("there is no operator " + name + (overload.empty() ? "" : "." + overload));
  push_overload(L, *found);
  return 1;
}

}  // namespace

void push_core(lua_State* L) {
  if (lua_getfield(L, LUA_REGISTRYINDEX, core_key) == LUA_TTABLE) return;
  lua_pop(L, 1);
  lua_newtable(L);
  lua_pushcfunction(L, guarded<core_op>);
  lua_setfield(L, -2, "op");
  lua_pushvalue(L, -1);
  lua_setfield(L, LUA_REGISTRYINDEX, core_key);
}

void open_torch(lua_State* L) {
  static const LimitedFunction functions[] = {{"tensor", guarded<create_tensor>, 2},
                                              {"manual_seed", guarded<manual_seed>, 1},
                                              {"is_tensor", guarded<is_tensor>, 1},
                                              {"is_floating_point", guarded<is_floating_point>, 1},
                                              {"is_complex", guarded<is_complex>, 1},
                                              {"device", guarded<device>, 2},
                                              {"get_default_dtype", guarded<get_default_dtype>, 0},
                                              {"finfo", guarded<finfo>, 1},
                                              {"iinfo", guarded<iinfo>, 1}};
  lua_newtable(L);
  set_limited(L, "torch.", functions);
  add_constants(L);
  add_autograd(L);
  for (const char* group : {"linalg", "fft", "special"}) {
    lua_newtable(L);
    add_operators(L, (std::string(group) + "_").c_str());
    lua_setfield(L, -2, group);
  }
  lua_newtable(L);
  lua_newtable(L);
  lua_pushcfunction(L, guarded<namespaces_index>);
  lua_setfield(L, -2, "__index");
  lua_pushliteral(L, "torch.ops");
  lua_setfield(L, -2, "__metatable");
  lua_setmetatable(L, -2);
  lua_setfield(L, -2, "ops");
  add_operators(L, "");
  lua_setglobal(L, "torch");
  push_core(L);
  lua_pop(L, 1);
}

}  // namespace triage::lua
