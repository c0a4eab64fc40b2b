#include "bindings/lua/engine/policies/policy_state.h"

#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/table_fields.h"
#include "bindings/lua/tensors/calls/overloads.h"
#include "bindings/lua/values/constants.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/read_only.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/flags/checks.h"
#include "runtime/policy/state/state_of_call.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

namespace triage::lua {
namespace {

constexpr size_t most_state = 100, most_dims = 16, longest_state_name = 255;
constexpr const char* example = "state = { last = { shape = {\"N\", 8}, dtype = torch.float32, init = 0 } }";

bool is_state_name(std::string_view text) {
  return !text.empty() && text.size() <= longest_state_name && !std::isdigit(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

std::string key_text(lua_State* L, int index) {
  return lua_type(L, index) == LUA_TSTRING ? lua_tostring(L, index) : "";
}

[[noreturn]] void refuse(const std::string& name, const std::string& message) {
  throw LoadError("policy: field 'state': '" + name + "': " + message);
}

/// Of the declaration at the top.
void check_fields(lua_State* L, const std::string& name) {
  for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
    const std::string key = key_text(L, -2);
    if (key == "shape" || key == "dtype" || key == "init") continue;
    refuse(name, (key.empty() ? "expected named fields only"
                              : "there is no field '" + key + "'" +
                                    did_you_mean(close_words(key, {"shape", "dtype", "init"}))) +
                     " (fields: shape, dtype, init)");
  }
}

std::vector<Dim> read_shape(lua_State* L, const std::string& name) {
  if (push_own_field(L, -1, "shape") != LUA_TTABLE)
    refuse(name,
           "field 'shape': expected a list of sizes, such as {8}, {} for one number, or {\"N\", 8} for 8 of each "
           "sample, got " +
               describe(L, -1));
  const auto count = static_cast<lua_Integer>(lua_rawlen(L, -1));
  if (count > static_cast<lua_Integer>(most_dims))
    refuse(name, "field 'shape' has " + std::to_string(count) + " dimensions; at most " + std::to_string(most_dims) +
                     " are allowed");
  std::vector<Dim> dims;
  for (lua_Integer i = 1; i <= count; ++i) {
    lua_rawgeti(L, -1, i);
    if (lua_isinteger(L, -1) && lua_tointeger(L, -1) >= 0)
      dims.emplace_back(static_cast<int64_t>(lua_tointeger(L, -1)));
    else if (i == 1 && key_text(L, -1) == "N")
      dims.emplace_back("N");
    else
      refuse(name, "field 'shape': entry " + std::to_string(i) + ": expected a size" +
                       (i == 1 ? ", or \"N\" for the size of the batch" : "") + ", got " + describe(L, -1) +
                       (i > 1 && lua_type(L, -1) == LUA_TSTRING ? "; only the first dimension can be the batch" : ""));
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  return dims;
}

at::ScalarType read_dtype(lua_State* L, const std::string& name) {
  if (push_own_field(L, -1, "dtype") == LUA_TNIL) return lua_pop(L, 1), at::kFloat;
  const auto dtype = test_dtype(L, -1);
  if (!dtype) refuse(name, "field 'dtype': expected a dtype, such as torch.float32, got " + describe(L, -1));
  lua_pop(L, 1);
  return *dtype;
}

/// A number or a boolean at the top that fits the dtype; nothing for any other value.
std::optional<c10::Scalar> scalar_for(lua_State* L, at::ScalarType dtype) {
  if (lua_isboolean(L, -1))
    return dtype == at::kBool ? std::optional<c10::Scalar>(lua_toboolean(L, -1) != 0) : std::nullopt;
  if (lua_type(L, -1) != LUA_TNUMBER || dtype == at::kBool) return std::nullopt;
  if (lua_isinteger(L, -1)) return c10::Scalar(static_cast<int64_t>(lua_tointeger(L, -1)));
  if (!at::isFloatingType(dtype) && !at::isComplexType(dtype)) return std::nullopt;
  return c10::Scalar(static_cast<double>(lua_tonumber(L, -1)));
}

c10::Scalar read_init(lua_State* L, const std::string& name, at::ScalarType dtype) {
  if (push_own_field(L, -1, "init") == LUA_TNIL) {
    lua_pop(L, 1);
    return dtype == at::kBool ? c10::Scalar(false) : c10::Scalar(0);
  }
  const auto init = scalar_for(L, dtype);
  if (!init)
    refuse(name, "field 'init': expected " +
                     std::string(dtype == at::kBool                 ? "true or false"
                                 : at::isIntegralType(dtype, false) ? "an integer"
                                                                    : "a number") +
                     " for the dtype " + dtype_name(dtype) + ", got " + describe(L, -1));
  lua_pop(L, 1);
  return *init;
}

/// Whether the dtype can hold the number. at::full takes -1 for an unsigned one, and makes 255 of it.
bool can_hold(at::ScalarType dtype, const c10::Scalar& number) {
  if (!flags::check::holds(dtype, number)) return false;
  try {
    at::full(at::IntArrayRef(), number, dtype);
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

void check_init(const StateSpec& spec) {
  if (!can_hold(spec.type.dtype, spec.init))
    refuse(spec.name, "field 'init': " + dtype_name(spec.type.dtype) + " cannot hold this number");
}

at::Tensor filled(const StateSpec& spec, const c10::Scalar& value, int64_t batch) {
  StateSpec of_value = spec;
  of_value.init = value;
  return policy::with_first_state({{}, {}, {}, {}, {}, {of_value}}, batch, at::kCPU, {})[0];
}

}  // namespace

std::vector<StateSpec> read_state(lua_State* L, int table) {
  std::vector<StateSpec> state;
  const int type = lua_getfield(L, table, "state");
  if (type == LUA_TNIL) return lua_pop(L, 1), state;
  if (type != LUA_TTABLE)
    throw LoadError("policy: field 'state': expected a table of names and declarations, as in " + std::string(example) +
                    ", got " + describe(L, -1));
  const int list = lua_gettop(L);
  for (lua_pushnil(L); lua_next(L, list); lua_pop(L, 1)) {
    StateSpec spec{key_text(L, -2), {}, 0};
    if (!is_state_name(spec.name))
      throw LoadError("policy: field 'state': expected names (letters, digits and _) and declarations, as in " +
                      std::string(example) + ", got the key " + describe(L, -2));
    if (!lua_istable(L, -1))
      refuse(spec.name, "expected a declaration, as in " + std::string(example) + ", got " + describe(L, -1));
    check_fields(L, spec.name);
    spec.type.dims = read_shape(L, spec.name);
    spec.type.dtype = read_dtype(L, spec.name);
    spec.init = read_init(L, spec.name, spec.type.dtype);
    check_init(spec);
    state.push_back(std::move(spec));
    if (state.size() > most_state)
      throw LoadError("policy: field 'state' has more than " + std::to_string(most_state) + " entries");
  }
  lua_pop(L, 1);
  // Table order is not defined; the signature's must be.
  std::sort(state.begin(), state.end(), [](const StateSpec& a, const StateSpec& b) { return a.name < b.name; });
  policy::check_state_bytes({{}, {}, {}, {}, {}, state}, 1, static_cast<int64_t>(context(L).limits.tensor_bytes));
  return state;
}

void push_state(lua_State* L, const std::vector<StateSpec>& state, at::ArrayRef<at::Tensor> values) {
  lua_createtable(L, 0, static_cast<int>(state.size()));
  for (size_t i = 0; i < state.size(); ++i) {
    push_tensor(L, values[i]);
    lua_setfield(L, -2, state[i].name.c_str());
  }
  refuse_unknown_fields(L, "there is no state");
}

std::vector<at::Tensor> read_test_state(lua_State* L, const std::vector<StateSpec>& state, int64_t batch) {
  std::vector<at::Tensor> values;
  for (const StateSpec& spec : state) {
    push_own_field(L, -1, spec.name.c_str());
    at::Tensor value;
    if (const at::Tensor* tensor = test_tensor(L, -1))
      value = policy::as_kept(*tensor);
    else
      value = filled(spec, scalar_for(L, spec.type.dtype).value_or(spec.init), batch);
    const bool other_batch = !policy::fits(spec, value, batch) && policy::fits(spec, value);
    if (other_batch)
      value = value.size(0) > 0 ? value.index_select(0, at::arange(batch, at::kLong).remainder(value.size(0)))
                                : filled(spec, spec.init, batch);
    values.push_back(std::move(value));
    lua_pop(L, 1);
  }
  return values;
}

void check_test_state(lua_State* L, const std::string& where, const std::vector<StateSpec>& state) {
  if (!lua_istable(L, -1)) throw LoadError(where + ": field 'state': expected a table of names and tensors or numbers");
  for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
    const std::string name = key_text(L, -2), field = where + ": field 'state': ";
    const auto spec =
        std::find_if(state.begin(), state.end(), [&](const StateSpec& known) { return known.name == name; });
    if (spec == state.end()) throw LoadError(field + "the policy has no state '" + name + "'");
    const at::Tensor* const tensor = test_tensor(L, -1);
    const auto number = tensor ? std::nullopt : scalar_for(L, spec->type.dtype);
    if (number && !can_hold(spec->type.dtype, *number))
      throw LoadError(field + "'" + name + "': " + dtype_name(spec->type.dtype) + " cannot hold this number");
    if (tensor ? !policy::fits(*spec, *tensor) : !number)
      throw LoadError(field + "'" + name + "': expected " + spec->type.text() +
                      ", or a number for all its elements, got " + describe(L, -1));
  }
}

}  // namespace triage::lua
