#include "bindings/lua/numbers/math_library.h"

#include <ATen/ATen.h>

#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

#include "bindings/lua/numbers/operand.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/tensors/calls/call.h"
#include "bindings/lua/values/number.h"
#include "runtime/capture/recording/recorder.h"

namespace triage::lua {
namespace {

constexpr double kPi = 3.141592653589793238462643383279502884;
using Operands = std::vector<NumericOperand>;
/// Nothing where the graph cannot give it.
using MathResult = std::optional<at::Tensor>;

MathResult scaled(lua_State* L, NumericOperand x, double by) {
  x.make_double(L);
  return run_for_tensor(L, "aten::mul", "Scalar", {x.tensor, by});
}

MathResult absolute(lua_State* L, const NumericOperand& x) {
  if (x.whole && capture::range_of(x.tensor).min >= 0) return x.tensor;
  return run_for_tensor(L, "aten::abs", "", {x.tensor});
}

/// Lua gives a float where int64 does not hold the result: known not to happen, or not recorded.
MathResult rounded(lua_State* L, const char* name, const NumericOperand& x) {
  if (x.whole) return x.tensor;
  constexpr symbols::Number beyond = 9223372036854775808.0L;
  const symbols::Range range = capture::range_of(x.tensor);
  if (range.min < -beyond || range.max >= beyond) return std::nullopt;
  return record_math(L, name, x);
}

MathResult logarithm(lua_State* L, const Operands& x) {
  if (x.size() == 1) return record_math(L, "log", x[0]);
  if (x[1].symbolic()) return std::nullopt;
  const double base = x[1].number.toDouble();
  if (base == 2) return record_math(L, "log2", x[0]);
  if (base == 10) return record_math(L, "log10", x[0]);
  return run_for_tensor(L, "aten::div", "Scalar", {record_math(L, "log", x[0]), std::log(base)});
}

MathResult remainder(lua_State* L, const Operands& x) {
  if (!x[0].whole || !x[1].whole) return record_math(L, "fmod", x[0], x[1]);
  if (!x[0].symbolic() || x[1].symbolic() || x[1].number.toLong() <= 0) return std::nullopt;
  return run_for_tensor(L, "aten::fmod", "Scalar", {x[0].tensor, x[1].number});
}

/// The first of `math.max(a, b)`, unless the second is larger: a NaN that comes second is never chosen.
at::Tensor chosen(lua_State* L, bool largest, const NumericOperand& a, const NumericOperand& b) {
  if (a.whole && a.symbolic() && b.symbolic())
    return run_for_tensor(L, largest ? "aten::maximum" : "aten::minimum", "", {a.tensor, b.tensor});
  if (a.whole)
    return run_for_tensor(L, largest ? "aten::clamp_min" : "aten::clamp_max", "",
                          {a.symbolic() ? a.tensor : b.tensor, a.symbolic() ? b.number : a.number});
  const at::Tensor first = a.as_tensor(), second = b.as_tensor();
  const at::Tensor other = run_for_tensor(L, largest ? "aten::gt" : "aten::lt", "Tensor", {second, first});
  return run_for_tensor(L, "aten::where", "self", {other, second, first});
}

bool is_less(const NumericOperand& a, const NumericOperand& b) {  // plain numbers of one kind
  return a.whole ? a.number.toLong() < b.number.toLong() : a.number.toDouble() < b.number.toDouble();
}

MathResult extreme(lua_State* L, bool largest, const Operands& x) {
  NumericOperand best = x[0];
  for (size_t i = 1; i < x.size(); ++i) {
    if (x[i].whole != best.whole) return std::nullopt;  // which kind the result is, is known when it is computed
    if (best.symbolic() || x[i].symbolic())
      best.tensor = chosen(L, largest, best, x[i]);
    else if (largest ? is_less(best, x[i]) : is_less(x[i], best))
      best = x[i];
  }
  return best.tensor;
}

MathResult record(lua_State* L, const char* function, const Operands& x) {
  const std::string_view name = function;
  if (name == "max" || name == "min") return extreme(L, name == "max", x);
  if (name == "fmod") return x.size() > 1 ? remainder(L, x) : std::nullopt;
  if (name == "atan") {
    NumericOperand one;
    one.number = 1.0;
    return record_math(L, "atan2", x[0], x.size() > 1 ? x[1] : one);
  }
  if (!x[0].symbolic()) return std::nullopt;
  if (name == "log") return logarithm(L, x);
  if (name == "abs") return absolute(L, x[0]);
  if (name == "ceil" || name == "floor") return rounded(L, function, x[0]);
  if (name == "tointeger") return x[0].whole ? MathResult(x[0].tensor) : std::nullopt;
  if (name == "deg") return scaled(L, x[0], 180.0 / kPi);
  if (name == "rad") return scaled(L, x[0], kPi / 180.0);
  return record_math(L, function, x[0]);
}

/// (name, numbers...) -> a symbolic number, or nil.
int compute(lua_State* L) {
  Operands operands;
  for (int i = 2; i <= lua_gettop(L); ++i) operands.push_back(read_operand(L, i));
  if (const MathResult result = record(L, lua_tostring(L, 1), operands))
    push_number(L, *result);
  else
    lua_pushnil(L);
  return 1;
}

}  // namespace

bool push_math(lua_State* L, const char* name) {
  const int count = lua_gettop(L);
  bool symbolic = false;
  for (int i = 1; i <= count; ++i) {
    if (!is_operand(L, i)) return false;
    symbolic |= test_number(L, i) != nullptr;
  }
  if (!symbolic) return false;
  reserve(L, static_cast<size_t>(count), "too many numbers");
  lua_pushcfunction(L, guarded<compute>);
  lua_pushstring(L, name);
  for (int i = 1; i <= count; ++i) lua_pushvalue(L, i);
  lua_call(L, count + 1, 1);
  if (!lua_isnil(L, -1)) return true;
  lua_pop(L, 1);
  return false;
}

}  // namespace triage::lua
