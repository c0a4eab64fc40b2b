#include "bindings/lua/engine/policies/policy_params.h"

#include "bindings/lua/state/table_fields.h"
#include "bindings/lua/values/charge_copy.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/policy/params/param_values.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace triage::lua {
namespace {

constexpr size_t longest_list = 1 << 20;  // numbers of a param
constexpr size_t most_values = 1000, longest_help = 255;
constexpr const char* param_values =
    "a number, a boolean, a tensor, or a list of 1 to 1048576 numbers such as { 0.3, 0.5 }";
const std::vector<std::string>& declaration_fields() {
  static const auto& fields = *new std::vector<std::string>{"default", "min", "max", "finite", "values", "help"};
  return fields;
}

/// The list at `index` of numbers, as int64 where all are whole numbers of Lua, else as double. None where it is no
/// such list.
c10::IValue read_numbers(lua_State* L, int index) {
  const size_t count = lua_rawlen(L, index);
  size_t keys = 0;
  for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) ++keys;
  if (count == 0 || keys != count || count > longest_list) return {};
  std::vector<int64_t> whole;
  std::vector<double> numbers;
  for (size_t i = 1; i <= count; ++i) {
    if (lua_rawgeti(L, index, static_cast<lua_Integer>(i)) != LUA_TNUMBER) return lua_pop(L, 1), c10::IValue();
    if (lua_isinteger(L, -1)) whole.push_back(lua_tointeger(L, -1));
    numbers.push_back(lua_tonumber(L, -1));
    lua_pop(L, 1);
  }
  return whole.size() == count ? c10::IValue(std::move(whole)) : c10::IValue(std::move(numbers));
}

/// The value of a param at the top; None where it can be none.
c10::IValue value_at_top(lua_State* L) {
  if (lua_isboolean(L, -1)) return static_cast<bool>(lua_toboolean(L, -1));
  if (lua_isinteger(L, -1)) return static_cast<int64_t>(lua_tointeger(L, -1));
  if (lua_type(L, -1) == LUA_TNUMBER) return static_cast<double>(lua_tonumber(L, -1));
  if (const at::Tensor* tensor = test_tensor(L, -1); tensor && tensor->layout() == at::kStrided) {
    charge_copy(L, *tensor);
    return tensor->detach().clone();  // the script may write to its own
  }
  return lua_istable(L, -1) ? read_numbers(L, lua_gettop(L)) : c10::IValue();
}

ParamValue as_value(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor();
  if (value.isIntList()) return value.toIntVector();
  if (value.isDoubleList()) return value.toDoubleVector();
  return value.toScalar();
}

/// Whether what the policy wrote as the default has a NaN or Inf.
bool is_finite(const c10::IValue& value) {
  triage::Param any{"", value};
  return policy::refusal(any, as_value(value), policy::Reading::all).empty();
}

/// A table with a key that is a text. A list has none.
bool is_declaration(lua_State* L) {
  bool found = false;
  if (lua_istable(L, -1))
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) found = found || lua_type(L, -2) == LUA_TSTRING;
  return found;
}

/// Reads the declaration of a param at the top of the stack.
class Declaration {
 public:
  Declaration(lua_State* L, std::string name) : L_(L) { param_.name = std::move(name); }

  triage::Param read() {
    check_fields();
    read_default();
    read_finite();
    param_.min = read_bound("min");
    param_.max = read_bound("max");
    read_values();
    read_help();
    check();
    return std::move(param_);
  }

 private:
  [[noreturn]] void refuse(const std::string& message) const {
    throw LoadError("policy: param '" + param_.name + "': " + message);
  }
  [[noreturn]] void refuse(const char* field, const std::string& message) const {
    refuse("field '" + std::string(field) + "': " + message);
  }
  /// At the top.
  [[noreturn]] void refuse_value(const char* field, const std::string& expected) const {
    refuse(field, "expected " + expected + ", got " + describe(L_, -1));
  }

  void check_fields() const {
    constexpr const char* known = " (fields: default, min, max, finite, values, help)";
    for (lua_pushnil(L_); lua_next(L_, -2); lua_pop(L_, 1)) {
      const std::string key = lua_type(L_, -2) == LUA_TSTRING ? lua_tostring(L_, -2) : "";
      if (key.empty()) refuse(std::string("a declaration has named fields only") + known);
      const auto& fields = declaration_fields();
      if (std::find(fields.begin(), fields.end(), key) == fields.end())
        refuse("there is no field '" + key + "'" + did_you_mean(close_words(key, fields)) + known);
    }
  }

  /// What is written as a default alone may be what a declared one may not be without `finite = false`.
  void read_default() {
    if (push_own_field(L_, -1, "default") == LUA_TNIL)
      refuse("field 'default' is missing: the value that the param has until the host sets it");
    param_.value = value_at_top(L_);
    if (param_.value.isNone()) refuse_value("default", param_values);
    lua_pop(L_, 1);
  }

  void read_finite() {
    param_.finite = !param_.value.isTensor();
    if (push_own_field(L_, -1, "finite") != LUA_TNIL) {
      if (!lua_isboolean(L_, -1)) refuse_value("finite", "true or false");
      check_has_numbers("finite");
      param_.finite = lua_toboolean(L_, -1);
    }
    lua_pop(L_, 1);
  }

  void check_has_numbers(const char* field) const {
    const bool is_bool =
        param_.value.isBool() || (param_.value.isTensor() && param_.value.toTensor().scalar_type() == at::kBool);
    if (is_bool) refuse(field, "a boolean has no range; leave the field out");
    if (!param_.value.isTensor()) return;
    const at::ScalarType dtype = param_.value.toTensor().scalar_type();
    if (!at::isFloatingType(dtype) && !at::isIntegralType(dtype, /*includeBool=*/false))
      refuse(field, "a tensor of such numbers has no range; leave the field out");
  }

  /// The number at the top, which stands in `field`.
  c10::Scalar read_number(const char* field, const std::string& expected) const {
    if (lua_type(L_, -1) != LUA_TNUMBER || std::isnan(lua_tonumber(L_, -1))) refuse_value(field, expected);
    const bool whole = param_.value.isInt() || param_.value.isIntList();
    if (whole && !lua_isinteger(L_, -1))
      refuse(field, "expected a whole number, because the default is one (write 3.0 for a param with fractions), got " +
                        describe(L_, -1));
    if (lua_isinteger(L_, -1)) return static_cast<int64_t>(lua_tointeger(L_, -1));
    return static_cast<double>(lua_tonumber(L_, -1));
  }

  std::optional<c10::Scalar> read_bound(const char* field) const {
    std::optional<c10::Scalar> bound;
    if (push_own_field(L_, -1, field) != LUA_TNIL) {
      check_has_numbers(field);
      bound = read_number(field, "a number");
    }
    lua_pop(L_, 1);
    return bound;
  }

  void read_values() {
    if (push_own_field(L_, -1, "values") == LUA_TNIL) return lua_pop(L_, 1);
    check_has_numbers("values");
    const std::string expected = "a list of 1 to 1000 numbers such as { 1, 2, 4 }";
    const size_t count = lua_istable(L_, -1) ? lua_rawlen(L_, -1) : 0;
    size_t keys = 0;
    if (count > 0)
      for (lua_pushnil(L_); lua_next(L_, -2); lua_pop(L_, 1)) ++keys;
    if (count == 0 || count > most_values || keys != count) refuse_value("values", expected);
    for (size_t i = 1; i <= count; ++i) {
      lua_rawgeti(L_, -1, static_cast<lua_Integer>(i));
      param_.values.push_back(read_number("values", expected));
      lua_pop(L_, 1);
    }
    lua_pop(L_, 1);
  }

  void read_help() {
    if (push_own_field(L_, -1, "help") != LUA_TNIL) {
      size_t length = 0;
      const char* const text = lua_type(L_, -1) == LUA_TSTRING ? lua_tolstring(L_, -1, &length) : nullptr;
      const bool one_line = std::none_of(text, text + length, [](unsigned char c) { return c < 0x20 || c == 0x7F; });
      if (length == 0 || length > longest_help || !one_line) refuse_value("help", "one line of 1 to 255 bytes of text");
      param_.help.assign(text, length);
    }
    lua_pop(L_, 1);
  }

  void check() const {
    const auto text = [](const c10::Scalar& number) { return policy::number_text(number); };
    if (!param_.values.empty() && (param_.min || param_.max))
      refuse(param_.min ? "min" : "max", "field 'values' lists all that is allowed; leave out 'min' and 'max'");
    if (param_.min && param_.max && param_.min->toDouble() > param_.max->toDouble())
      refuse("min", text(*param_.min) + " is above the field 'max', " + text(*param_.max));
    for (const c10::Scalar& value : param_.values)
      if (param_.finite && !std::isfinite(value.toDouble()))
        refuse("values", text(value) + " is not finite; write finite = false to allow it");
    const std::string why = policy::refusal(param_, as_value(param_.value), policy::Reading::all);
    if (why.empty()) return;
    const bool is_of_finite = param_.finite && !is_finite(param_.value);
    refuse("field 'default' " + why + (is_of_finite ? "; write finite = false to allow NaN and Inf" : ""));
  }

  lua_State* const L_;
  triage::Param param_;
};

}  // namespace

triage::Param read_param(lua_State* L, std::string name) {
  if (is_declaration(L)) return Declaration(L, std::move(name)).read();
  triage::Param param{std::move(name), value_at_top(L)};
  if (param.value.isNone())
    throw LoadError("policy: param '" + param.name + "': expected " + param_values +
                    ", or a declaration such as { default = 0.5, min = 0, max = 1 }, got " + describe(L, -1));
  param.finite = !param.value.isTensor() && is_finite(param.value);  // who writes math.huge means it
  return param;
}

std::optional<ParamValue> read_param_value(lua_State* L) {
  const c10::IValue value = value_at_top(L);
  return value.isNone() ? std::nullopt : std::optional(as_value(value));
}

void check_test_params(lua_State* L, const std::string& where, const std::vector<triage::Param>& params) {
  if (push_own_field(L, -1, "params") == LUA_TNIL) return lua_pop(L, 1);
  if (!lua_istable(L, -1)) throw LoadError(where + ": field 'params': expected a table of names and values");
  lua_pushnil(L);
  while (lua_next(L, -2)) {
    const std::string name = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
    const auto param = std::find_if(params.begin(), params.end(), [&](const auto& each) { return each.name == name; });
    if (param == params.end()) throw LoadError(where + ": field 'params': the policy has no param '" + name + "'");
    const auto value = read_param_value(L);
    if (!value)
      throw LoadError(where + ": field 'params': '" + name + "': expected " + param_values + ", got " +
                      describe(L, -1));
    if (!policy::fitting(*param, *value))
      throw LoadError(where + ": field 'params': " + policy::misfit_text(*param, *value));
    if (const std::string why = policy::refusal(*param, *value, policy::Reading::all); !why.empty())
      throw LoadError(where + ": field 'params': " + policy::refusal_text(*param, why));
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
}

}  // namespace triage::lua
