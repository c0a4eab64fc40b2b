#include "bindings/lua/values/constants.h"
#include "bindings/lua/state/effects.h"
#include "bindings/lua/state/userdata.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/describe.h"
#include "runtime/graph/text/describe.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <c10/core/Device.h>
#include <triage/files.h>

#include <array>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string_view>

namespace triage::lua {
namespace {

const char constants_key = 0;  // registry: {[kind << 8 | value] = userdata}
const char constant_metatable = 0;
const char generator_metatable = 0;

struct TorchDtype {
  at::ScalarType type;
  const char* name;
  const char* alias;
};
constexpr std::array<TorchDtype, 12> dtypes{{{at::kFloat, "float32", "float"},
                                             {at::kDouble, "float64", "double"},
                                             {at::kHalf, "float16", "half"},
                                             {at::kBFloat16, "bfloat16", nullptr},
                                             {at::kByte, "uint8", nullptr},
                                             {at::kChar, "int8", nullptr},
                                             {at::kShort, "int16", "short"},
                                             {at::kInt, "int32", "int"},
                                             {at::kLong, "int64", "long"},
                                             {at::kBool, "bool", nullptr},
                                             {at::kComplexFloat, "complex64", "cfloat"},
                                             {at::kComplexDouble, "complex128", "cdouble"}}};

struct NamedConstant {
  ConstantKind kind;
  int8_t value;
  const char* name;
};
const std::array<NamedConstant, 8> others{
    {{ConstantKind::layout, static_cast<int8_t>(at::Layout::Strided), "strided"},
     {ConstantKind::layout, static_cast<int8_t>(at::Layout::Sparse), "sparse_coo"},
     {ConstantKind::layout, static_cast<int8_t>(at::Layout::SparseCsr), "sparse_csr"},
     {ConstantKind::memory_format, static_cast<int8_t>(at::MemoryFormat::Contiguous), "contiguous_format"},
     {ConstantKind::memory_format, static_cast<int8_t>(at::MemoryFormat::Preserve), "preserve_format"},
     {ConstantKind::memory_format, static_cast<int8_t>(at::MemoryFormat::ChannelsLast), "channels_last"},
     {ConstantKind::memory_format, static_cast<int8_t>(at::MemoryFormat::ChannelsLast3d), "channels_last_3d"},
     {ConstantKind::none, 0, "None"}}};

void push_constant(lua_State* L, TorchConstant constant) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &constants_key);
  lua_Integer id = static_cast<lua_Integer>(constant.kind) << 8 | static_cast<uint8_t>(constant.value);
  if (lua_rawgeti(L, -1, id) == LUA_TNIL) {
    lua_pop(L, 1);
    push_userdata(L, constant, &constant_metatable);
    lua_pushvalue(L, -1);
    lua_rawseti(L, -3, id);
  }
  lua_remove(L, -2);
}

const TorchConstant& check_constant(lua_State* L, int index) {
  const TorchConstant* constant = test_constant(L, index);
  if (!constant) luaL_typeerror(L, index, "torch constant");
  return *constant;
}

int constant_tostring(lua_State* L) {
  std::string name = constant_name(check_constant(L, 1));
  lua_pushlstring(L, name.data(), name.size());
  return 1;
}

int constant_index(lua_State* L) {
  const TorchConstant& constant = check_constant(L, 1);
  const char* key = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "";
  auto dtype = static_cast<at::ScalarType>(constant.value);
  bool is_dtype = constant.kind == ConstantKind::dtype;
  if (is_dtype && !std::strcmp(key, "is_floating_point"))
    lua_pushboolean(L, at::isFloatingType(dtype));
  else if (is_dtype && !std::strcmp(key, "is_complex"))
    lua_pushboolean(L, at::isComplexType(dtype));
  else if (is_dtype && !std::strcmp(key, "itemsize"))
    lua_pushinteger(L, static_cast<lua_Integer>(at::elementSize(dtype)));
  else
    lua_pushnil(L);
  return 1;
}

/// torch.Generator([device]) or torch.Generator(seed)
int generator_new(lua_State* L) {
  if (lua_type(L, 1) == LUA_TSTRING || test_constant(L, 1)) {
    luaL_tolstring(L, 1, nullptr);
    if (lua_tostring(L, -1) != std::string_view("cpu"))
      throw std::invalid_argument("torch.Generator: expected the device \"cpu\", or a seed; got " + describe(L, 1));
    lua_settop(L, 0);
  }
  const lua_Integer seed = integer_argument(L, {1, "torch.Generator", "seed"},
                                            static_cast<lua_Integer>(c10::detail::getNonDeterministicRandom() >> 1));
  push_userdata(L, at::Generator(at::detail::createCPUGenerator(static_cast<uint64_t>(seed))), &generator_metatable,
                sizeof(at::CPUGeneratorImpl));
  return 1;
}

at::Generator& check_generator(lua_State* L) {
  const at::Generator* generator = test_generator(L, 1);
  if (!generator) luaL_typeerror(L, 1, "Generator");
  if (!generator->defined()) luaL_argerror(L, 1, "the generator was closed");
  return const_cast<at::Generator&>(*generator);
}

int generator_seed(lua_State* L) {
  at::Generator& generator = check_generator(L);
  refuse_in_selection(L, "`manual_seed` of a generator");
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(static_cast<uint64_t>(integer_argument(L, {2, "generator:manual_seed", "seed"})));
  lua_settop(L, 1);
  return 1;
}

int generator_gc(lua_State* L) {
  if (const at::Generator* generator = test_generator(L, 1)) *const_cast<at::Generator*>(generator) = at::Generator();
  return 0;
}

void open_generators(lua_State* L) {
  static const luaL_Reg meta[] = {{"__gc", guarded<generator_gc>}, {nullptr, nullptr}};
  static const LimitedFunction methods[] = {{"manual_seed", guarded<generator_seed>, 2}};
  make_metatable(L, &generator_metatable, "Generator", meta);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &generator_metatable);
  lua_newtable(L);
  set_limited(L, "generator:", methods);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
  static const LimitedFunction functions[] = {{"Generator", guarded<generator_new>, 1}};
  set_limited(L, "torch.", functions);
}

}  // namespace

void add_constants(lua_State* L) {
  static const luaL_Reg meta[] = {
      {"__tostring", guarded<constant_tostring>}, {"__index", guarded<constant_index>}, {nullptr, nullptr}};
  make_metatable(L, &constant_metatable, "torch constant", meta);
  lua_newtable(L);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &constants_key);
  for (const TorchDtype& dtype : dtypes) {
    for (const char* name : {dtype.name, dtype.alias}) {
      if (!name) continue;
      push_dtype(L, dtype.type);
      lua_setfield(L, -2, name);
    }
  }
  for (const NamedConstant& other : others) {
    push_constant(L, {other.kind, other.value});
    lua_setfield(L, -2, other.name);
  }
  open_generators(L);
}

void push_dtype(lua_State* L, at::ScalarType dtype) {
  push_constant(L, {ConstantKind::dtype, static_cast<int8_t>(dtype)});
}
void push_layout(lua_State* L, at::Layout layout) {
  push_constant(L, {ConstantKind::layout, static_cast<int8_t>(layout)});
}
void push_none(lua_State* L) { push_constant(L, {ConstantKind::none, 0}); }

const TorchConstant* test_constant(lua_State* L, int index) {
  return test_userdata<const TorchConstant>(L, index, &constant_metatable);
}

std::optional<at::ScalarType> test_dtype(lua_State* L, int index) {
  const TorchConstant* constant = test_constant(L, index);
  if (!constant || constant->kind != ConstantKind::dtype) return std::nullopt;
  return static_cast<at::ScalarType>(constant->value);
}

bool is_none(lua_State* L, int index) {
  if (lua_isnoneornil(L, index)) return true;
  const TorchConstant* constant = test_constant(L, index);
  return constant && constant->kind == ConstantKind::none;
}

const at::Generator* test_generator(lua_State* L, int index) {
  return test_userdata<const at::Generator>(L, index, &generator_metatable);
}

std::string dtype_name(at::ScalarType type) { return "torch." + triage::dtype_name(type); }

std::string constant_name(const TorchConstant& constant) {
  if (constant.kind == ConstantKind::dtype) return dtype_name(static_cast<at::ScalarType>(constant.value));
  for (const NamedConstant& other : others)
    if (other.kind == constant.kind && other.value == constant.value) return std::string("torch.") + other.name;
  return "torch.?";
}

c10::Device parse_device(const std::string& text) {
  try {
    return c10::Device(text);
  } catch (const c10::Error&) {
    const std::string dtype = text.substr(text.rfind('.') + 1);
    if (graph::dtype_of_name(dtype))
      throw std::invalid_argument("\"" + text + "\" is not a device; a dtype is no text: write torch." + dtype);
    throw std::invalid_argument("\"" + text + "\" is not a device; write \"cpu\", \"cuda\", \"cuda:0\" or \"meta\"");
  }
}

}  // namespace triage::lua
