// Checks hold in eager code, and stay in captured code as assertions; there they say in which range a number lies.
#include "bindings/lua/compile/value_checks.h"

#include "bindings/lua/capture/user_code.h"
#include "bindings/lua/numbers/arithmetic.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/number.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/sizes/numbers.h"

#include <ATen/ATen.h>

#include <optional>
#include <stdexcept>
#include <string>

namespace triage::lua {
namespace {

using capture::Recorder;

/// `known`: what was known of the numbers in the expression.
[[noreturn]] void fail(lua_State* L, const std::string& expression, const std::string& known,
                       const std::string& message) {
  const std::string line = line_as_written(L);
  throw std::invalid_argument("Runtime assertion failed" + (expression.empty() ? "" : " for expression " + expression) +
                              (known.empty() ? "" : " (" + known + ")") + (message.empty() ? "" : ": " + message) +
                              (line.empty() ? "" : "\n    " + line));
}

/// `index` holds a condition; where the capture has no words for it, it is told as the script has it.
void check_condition(lua_State* L, int index, const std::string& message) {
  const at::Tensor* condition = test_symbolic(L, index);
  if (!condition) condition = test_tensor(L, index);
  if (!condition) {
    if (!lua_toboolean(L, index)) fail(L, argument_as_written(L, "check"), "", message);
    return;
  }
  if (condition->scalar_type() != at::kBool || condition->numel() != 1)
    throw std::invalid_argument("triage.check: expected a boolean, such as n <= 5 or (x > 0):all(), got " +
                                describe(L, index));
  const Recorder* recorder = Recorder::current();
  const bool captured = recorder && recorder->tensors().knows(*condition);
  const bool holds = condition->item().toBool();
  if (holds && !captured) return;
  std::string expression = captured ? capture::number_text(*condition) : "";
  if (expression.empty()) expression = argument_as_written(L, "check");
  if (!holds) fail(L, expression, captured ? capture::what_is_known(*condition) : "", message);
  capture::record_check(*condition, expression, message);
}

/// triage.check(condition, message)
int check(lua_State* L) {
  if (lua_isnone(L, 1)) wrong_argument(L, {1, "triage.check", "condition"}, "a boolean such as n <= 5");
  check_condition(L, 1, text_argument(L, {2, "triage.check", "message"}, ""));
  return 0;
}

/// Checks `value at 1` `method` `bound`.
void check_bound(lua_State* L, const char* method, const char* sign, lua_Number bound, bool whole) {
  lua_settop(L, 1);
  whole ? lua_pushinteger(L, static_cast<lua_Integer>(bound)) : lua_pushnumber(L, bound);
  const std::string shown = luaL_tolstring(L, 2, nullptr);
  lua_pop(L, 1);
  if (test_symbolic(L, 1)) {
    compare_numbers(L, method);
  } else {
    const bool least = method[0] == 'g';
    lua_pushboolean(L, lua_compare(L, least ? 2 : 1, least ? 1 : 2, LUA_OPLE));
  }
  if (lua_isboolean(L, -1) && !lua_toboolean(L, -1)) {
    const at::Tensor* const symbolic = capture::Recorder::current() ? test_symbolic(L, 1) : nullptr;
    std::string value = symbolic ? capture::number_text(*symbolic) : "";
    const std::string known = symbolic ? capture::what_is_known(*symbolic) : "";
    lua_pushvalue(L, 1);
    if (value.empty()) {
      specialize_number(L, -1);
      value = luaL_tolstring(L, -1, nullptr);
    }
    fail(L, value + " " + sign + " " + shown, known, "");
  }
  check_condition(L, lua_gettop(L), "");
  lua_settop(L, 1);
}

void check_is_number(lua_State* L, const char* what, bool whole) {
  const at::Tensor* symbolic = test_symbolic(L, 1);
  const bool number = symbolic ? symbolic->scalar_type() != at::kBool : lua_type(L, 1) == LUA_TNUMBER;
  const bool fits = number && (!whole || (symbolic ? is_whole_number(*symbolic) : lua_isinteger(L, 1)));
  if (!fits)
    throw std::invalid_argument(std::string(what) + (whole ? " takes an integer, got " : " takes a number, got ") +
                                describe(L, 1));
}

/// triage.check_is_size(n)
int check_is_size(lua_State* L) {
  lua_settop(L, 1);
  check_is_number(L, "triage.check_is_size", true);
  check_bound(L, "ge", ">=", 0, true);
  return 0;
}

struct Bounds {
  std::optional<lua_Number> min, max;
  bool whole = true;
};

Bounds read_bounds(lua_State* L, const char* what, bool whole) {
  Bounds bounds;
  if (lua_isnoneornil(L, 2)) return bounds;
  table_argument(L, {2, what, "range"});
  for (lua_pushnil(L); lua_next(L, 2); lua_pop(L, 1)) {
    const std::string key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
    const bool fits = whole ? lua_isinteger(L, -1) : lua_type(L, -1) == LUA_TNUMBER;
    if ((key != "min" && key != "max") || !fits)
      throw std::invalid_argument(std::string(what) + ": option '" + key + "' is unknown or has the wrong type (" +
                                  describe(L, -1) + "); options are min and max, " + (whole ? "integers" : "numbers"));
    (key == "min" ? bounds.min : bounds.max) = lua_tonumber(L, -1);
    bounds.whole &= static_cast<bool>(lua_isinteger(L, -1));
  }
  return bounds;
}

/// triage.constrain_as_value(n, {min, max}), triage.constrain_as_size(n, {min, max})
template <bool as_size>
int constrain(lua_State* L) {
  const char* const what = as_size ? "triage.constrain_as_size" : "triage.constrain_as_value";
  check_is_number(L, what, as_size);
  Bounds bounds = read_bounds(L, what, as_size);
  if (as_size && !bounds.min) bounds.min = 0;
  if (as_size && *bounds.min < 0) throw std::invalid_argument(std::string(what) + ": min must be at least 0");
  if (bounds.min) check_bound(L, "ge", ">=", *bounds.min, bounds.whole);
  if (bounds.max) check_bound(L, "le", "<=", *bounds.max, bounds.whole);
  return 0;
}

}  // namespace

void add_checks(lua_State* L) {
  static const LimitedFunction functions[] = {{"check", guarded<check>, 2},
                                              {"check_is_size", guarded<check_is_size>, 1},
                                              {"constrain_as_value", guarded<constrain<false>>, 2},
                                              {"constrain_as_size", guarded<constrain<true>>, 2}};
  set_limited(L, "triage.", functions);
}

}  // namespace triage::lua
