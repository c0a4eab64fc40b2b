// Declarations as Lua values: immutable userdata.
#include "bindings/lua/state/state.h"
#include "bindings/lua/state/userdata.h"
#include "bindings/lua/tensors/torch.h"
#include "bindings/lua/typing/typing.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/constants.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/number.h"
#include "bindings/lua/values/tensor.h"

#include <triage/error.h>
#include <triage/type_cast.h>

#include <string>
#include <string_view>
#include <utility>

namespace triage::lua {
namespace {

// Their addresses are the registry keys of the metatables.
const char spec_metatable = 0, dim_metatable = 0, dtypes_metatable = 0, failure_metatable = 0;

/// What stands for several dtypes: error_t, floating_t, ...
struct DTypes {
  const char* name;
  bool flags;
  DTypeKind kind;
};
constexpr DTypes several_dtypes[] = {{"error_t", true, DTypeKind::exact},
                                     {"floating_t", false, DTypeKind::floating},
                                     {"integer_t", false, DTypeKind::integer},
                                     {"any_t", false, DTypeKind::any}};

const Dim* test_dim(lua_State* L, int index) { return test_userdata<Dim>(L, index, &dim_metatable); }
const DTypes* test_dtypes(lua_State* L, int index) { return test_userdata<DTypes>(L, index, &dtypes_metatable); }

int spec_tostring(lua_State* L) {
  const TensorSpec* spec = test_spec(L, 1);
  lua_pushstring(L, spec ? spec->text().c_str() : "Tensor");
  return 1;
}

int spec_eq(lua_State* L) {
  const TensorSpec *a = test_spec(L, 1), *b = test_spec(L, 2);
  lua_pushboolean(L, a && b && *a == *b);
  return 1;
}

void push_dim(lua_State* L, const Dim& dim) {
  if (dim.kind == Dim::Kind::size)
    lua_pushinteger(L, dim.value);
  else if (dim.kind == Dim::Kind::attribute || dim.kind == Dim::Kind::broadcast)
    push_userdata(L, dim, &dim_metatable);
  else
    lua_pushstring(L, dim.kind == Dim::Kind::rest ? "..." : dim.name.c_str());
}

/// dtype, dims, device and requires_grad, as `Tensor` takes them; nil where the declaration leaves one open.
int spec_index(lua_State* L) {
  const TensorSpec* spec = test_spec(L, 1);
  const std::string_view field = spec && lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "";
  if (field == "dtype") {
    if (!spec->flags && spec->kind == DTypeKind::exact) return push_dtype(L, spec->dtype), 1;
    for (const DTypes& several : several_dtypes)
      if (several.flags == spec->flags && several.kind == spec->kind) push_userdata(L, several, &dtypes_metatable);
    return 1;
  }
  if (field == "dims") {
    lua_createtable(L, static_cast<int>(spec->dims.size()), 0);
    for (size_t i = 0; i < spec->dims.size(); ++i) {
      push_dim(L, spec->dims[i]);
      lua_rawseti(L, -2, static_cast<lua_Integer>(i + 1));
    }
    return 1;
  }
  if (field == "device") {
    spec->device ? void(lua_pushstring(L, spec->device->str().c_str())) : lua_pushnil(L);
    return 1;
  }
  if (field == "requires_grad") {
    spec->requires_grad ? lua_pushboolean(L, *spec->requires_grad) : lua_pushnil(L);
    return 1;
  }
  throw InputError("a type of tensors has no field " +
                   (lua_type(L, 2) == LUA_TSTRING ? "'" + std::string(lua_tostring(L, 2)) + "'" : describe(L, 2)) +
                   "; it has dtype, dims, device and requires_grad");
}

int dim_tostring(lua_State* L) {
  const Dim* dim = test_dim(L, 1);
  lua_pushstring(L, dim ? dim->text().c_str() : "Dim");
  return 1;
}

int dtypes_tostring(lua_State* L) {
  const DTypes* several = test_dtypes(L, 1);
  lua_pushstring(L, several ? several->name : "dtypes");
  return 1;
}

int failure_tostring(lua_State* L) {
  const std::string text = error_text(L, 1);
  lua_pushlstring(L, text.data(), text.size());
  return 1;
}

// Bounds on what a declaration may make of a script's strings, which cost the script nothing to repeat.
constexpr size_t max_dims = 64;

/// Dim.hidden
int dim_attribute(lua_State* L) {
  if (lua_type(L, 2) != LUA_TSTRING || lua_rawlen(L, 2) > max_name)
    throw InputError("Dim: expected the name of an attribute, as in Dim.hidden, got " + describe(L, 2));
  push_userdata(L, Dim::attribute(lua_tostring(L, 2)), &dim_metatable);
  return 1;
}

Dim read_dim(lua_State* L, int index, lua_Integer position) {
  if (const Dim* dim = test_dim(L, index)) return *dim;
  specialize_number(L, index);
  if (lua_isinteger(L, index)) return Dim(static_cast<int64_t>(lua_tointeger(L, index)));
  if (lua_type(L, index) == LUA_TSTRING && lua_rawlen(L, index) <= max_name) return Dim(lua_tostring(L, index));
  throw InputError("Tensor: dimension " + std::to_string(position - 1) +
                   ": expected a size, a name such as \"N\", Dim.attribute, Broadcast or \"...\", got " +
                   describe(L, index));
}

std::vector<Dim> read_dims(lua_State* L, int index) {
  if (!lua_istable(L, index))
    throw InputError("Tensor: expected a list of dimensions, as in {\"N\", 512}, got " + describe(L, index));
  if (lua_rawlen(L, index) > max_dims)
    throw InputError("Tensor: expected at most " + std::to_string(max_dims) + " dimensions, got " + describe(L, index));
  std::vector<Dim> dims;
  for (lua_Integer i = 1; i <= static_cast<lua_Integer>(lua_rawlen(L, index)); ++i) {
    lua_rawgeti(L, index, i);
    dims.push_back(read_dim(L, lua_gettop(L), i));
    lua_pop(L, 1);
  }
  return dims;
}

/// Tensor(dtype, {dims...}, device, requires_grad)
int new_spec(lua_State* L) {
  at_most(L, 4, "Tensor");
  lua_settop(L, 4);
  TensorSpec spec;
  const auto dtype = test_dtype(L, 1);
  const DTypes* several = test_dtypes(L, 1);
  if (!dtype && !several)
    throw InputError(
        "Tensor: expected a dtype such as float32_t, floating_t, integer_t or any_t, or error_t for flags, got " +
        describe(L, 1));
  if (dtype) spec.dtype = *dtype;
  if (several) spec.flags = several->flags, spec.kind = several->kind;
  if (!lua_isnil(L, 2)) spec.dims = read_dims(L, 2);
  if (lua_type(L, 3) == LUA_TSTRING)
    spec.device = on_behalf_of("Tensor", [L] { return parse_device(lua_tostring(L, 3)); });
  else if (!lua_isnil(L, 3))
    throw InputError("Tensor: expected a device such as \"cpu\", or nil for any, got " + describe(L, 3));
  if (lua_isboolean(L, 4))
    spec.requires_grad = lua_toboolean(L, 4) != 0;
  else if (!lua_isnil(L, 4))
    throw InputError("Tensor: expected true or false as requires_grad, or nil for any, got " + describe(L, 4));
  spec.validate();
  const size_t behind = bytes_behind(spec);
  push_userdata(L, std::move(spec), &spec_metatable, behind);
  return 1;
}

void make_metatables(lua_State* L) {
  static const luaL_Reg spec[] = {{"__tostring", guarded<spec_tostring>},
                                  {"__eq", guarded<spec_eq>},
                                  {"__index", guarded<spec_index>},
                                  {"__gc", guarded<free_userdata<TensorSpec, spec_metatable>>},
                                  {nullptr, nullptr}};
  make_metatable(L, &spec_metatable, "Tensor type", spec);
  static const luaL_Reg dim[] = {
      {"__tostring", guarded<dim_tostring>}, {"__gc", guarded<free_userdata<Dim, dim_metatable>>}, {nullptr, nullptr}};
  make_metatable(L, &dim_metatable, "dimension", dim);
  static const luaL_Reg dtypes[] = {{"__tostring", guarded<dtypes_tostring>}, {nullptr, nullptr}};
  make_metatable(L, &dtypes_metatable, "dtypes", dtypes);
  static const luaL_Reg failure[] = {{"__tostring", guarded<failure_tostring>}, {nullptr, nullptr}};
  make_metatable(L, &failure_metatable, "ValidationError", failure);
}

void set_global_dim(lua_State* L) {
  lua_newtable(L);
  lua_newtable(L);
  lua_pushcfunction(L, guarded<dim_attribute>);
  lua_setfield(L, -2, "__index");
  lua_pushliteral(L, "Dim");
  lua_setfield(L, -2, "__metatable");
  lua_setmetatable(L, -2);
  lua_setglobal(L, "Dim");
}

void push_detail(lua_State* L, const ValidationFailure::Detail& detail) {
  if (const auto* number = std::get_if<int64_t>(&detail))
    lua_pushinteger(L, *number);
  else if (const auto* text = std::get_if<std::string>(&detail))
    lua_pushlstring(L, text->data(), text->size());
  else
    lua_pushnil(L);
}

void set_text(lua_State* L, const char* field, const std::string& text) {
  if (text.empty()) return;
  lua_pushlstring(L, text.data(), text.size());
  lua_setfield(L, -2, field);
}

/// core.failed(kind, function, expected, actual, message) -> an error table
int new_failure(lua_State* L) {
  ValidationFailure failure;
  failure.kind = static_cast<ValidationKind>(luaL_checkinteger(L, 1));
  failure.function = luaL_checkstring(L, 2);
  failure.expected = std::string(luaL_checkstring(L, 3));
  failure.actual = std::string(luaL_checkstring(L, 4));
  failure.message = std::string(to_string(failure.kind)) + ": " + failure.function + ": " + luaL_checkstring(L, 5);
  push_failure(L, std::move(failure));
  return 1;
}

/// core.cast_failure(dtype, x) -> an error table, or nothing
int push_cast_failure(lua_State* L) {
  const auto dtype = test_dtype(L, 1);
  const at::Tensor* x = test_tensor(L, 2);
  if (!dtype || !x) {
    const std::string expected = dtype ? "a tensor" : "a dtype such as float32_t", got = describe(L, dtype ? 2 : 1);
    const std::string parameter = dtype ? "x" : "dtype";
    push_failure(
        L, {ValidationKind::invalid_parameter, "type_cast", parameter, "", expected, got,
            "InvalidParameterError: type_cast: argument '" + parameter + "': expected " + expected + ", got " + got});
    return 1;
  }
  auto failure = cast_failure(*dtype, *x);
  if (failure) push_failure(L, std::move(*failure));
  return failure ? 1 : 0;
}

/// Whether the value is one of the error tables of push_failure.
int is_failure(lua_State* L) {
  lua_pushboolean(L, lua_istable(L, 1) && has_metatable(L, 1, &failure_metatable));
  return 1;
}

}  // namespace

const TensorSpec* test_spec(lua_State* L, int index) { return test_userdata<TensorSpec>(L, index, &spec_metatable); }

size_t bytes_behind(const TensorSpec& spec) {
  size_t bytes = spec.dims.capacity() * sizeof(Dim);
  for (const Dim& dim : spec.dims) bytes += dim.name.capacity();
  return bytes;
}

void push_failure(lua_State* L, ValidationFailure failure) {
  const Source where = current_line(L);
  if (!where.file.empty()) failure.message = where.file + ":" + std::to_string(where.line) + ": " + failure.message;
  lua_createtable(L, 0, 7);
  set_text(L, "kind", to_string(failure.kind));
  set_text(L, "message", failure.message);
  set_text(L, "function", failure.function);
  set_text(L, "parameter", failure.parameter);
  set_text(L, "dim_name", failure.dim_name);
  push_detail(L, failure.expected);
  lua_setfield(L, -2, "expected");
  push_detail(L, failure.actual);
  lua_setfield(L, -2, "actual");
  lua_rawgetp(L, LUA_REGISTRYINDEX, &failure_metatable);
  lua_setmetatable(L, -2);
}

void open_typing(lua_State* L) {
  make_metatables(L);
  lua_register(L, "Tensor", guarded<new_spec>);
  set_global_dim(L);
  push_userdata(L, Dim::broadcast(), &dim_metatable);
  lua_setglobal(L, "Broadcast");
  for (const DTypes& several : several_dtypes) {
    push_userdata(L, several, &dtypes_metatable);
    lua_setglobal(L, several.name);
  }
  static constexpr std::pair<const char*, at::ScalarType> aliases[] = {
      {"float16_t", at::kHalf}, {"bfloat16_t", at::kBFloat16}, {"float32_t", at::kFloat}, {"float64_t", at::kDouble},
      {"int8_t", at::kChar},    {"int16_t", at::kShort},       {"int32_t", at::kInt},     {"int64_t", at::kLong},
      {"uint8_t", at::kByte},   {"bool_t", at::kBool}};
  for (const auto& [name, dtype] : aliases) {
    push_dtype(L, dtype);
    lua_setglobal(L, name);
  }
  push_core(L);
  static const luaL_Reg functions[] = {{"failed", guarded<new_failure>},
                                       {"is_failure", guarded<is_failure>},
                                       {"cast_failure", guarded<push_cast_failure>},
                                       {nullptr, nullptr}};
  luaL_setfuncs(L, functions, 0);
  add_tensorcheck(L);
  lua_pop(L, 1);
}

}  // namespace triage::lua
