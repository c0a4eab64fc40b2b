#include "bindings/lua/numbers/arithmetic.h"

#include "bindings/lua/numbers/operand.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/tensors/calls/call.h"
#include "bindings/lua/values/number.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/sizes/numbers.h"

#include <ATen/ATen.h>

#include <cmath>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace triage::lua {
namespace {

int number_tostring(lua_State* L) {
  specialize_number(L, 1);
  luaL_tolstring(L, 1, nullptr);
  return 1;
}

struct Arithmetic {
  const char* event;
  int lua_op;
  const char* name;  // aten
  const char* with_scalar;
  const char* with_tensor;
  bool alpha;      // takes a third argument
  bool as_double;  // Lua converts both sides
};

/// Is one side a symbolic number of this capture, and the other that or a plain number?
bool can_be_recorded(lua_State* L) {
  return (test_number(L, 1) || test_number(L, 2)) && is_operand(L, 1) && is_operand(L, 2);
}

/// With a tensor on the other side it is the tensor's business.
bool hand_to_tensor(lua_State* L, const char* event) {
  const int tensor = test_tensor(L, 1) ? 1 : test_tensor(L, 2) ? 2 : 0;
  if (!tensor || luaL_getmetafield(L, tensor, event) == LUA_TNIL) return false;
  lua_insert(L, 1);
  lua_call(L, 2, 1);
  return true;
}

/// Lua's `//` of floats is the floor of the quotient, so that what is infinite stays it; ATen's is not.
constexpr Arithmetic kQuotient{"__div", LUA_OPDIV, "aten::div", "Scalar", "Tensor", false, true};

at::Tensor record(lua_State* L, const Arithmetic& op, NumericOperand left, NumericOperand right) {
  if (op.lua_op == LUA_OPIDIV && (!left.whole || !right.whole))
    return run_for_tensor(L, "aten::floor", "", {record(L, kQuotient, left, right)});
  if (op.lua_op == LUA_OPPOW) return record_math(L, "pow", left, right);
  if (op.as_double || !left.whole || !right.whole) {
    left.make_double(L);
    right.make_double(L);
  }
  if (!left.tensor.defined() && (op.lua_op == LUA_OPADD || op.lua_op == LUA_OPMUL)) std::swap(left, right);
  if (!left.tensor.defined() && op.lua_op == LUA_OPSUB)
    return run_for_tensor(L, "aten::rsub", "Scalar", {right.tensor, left.number, 1});
  const bool scalar = left.tensor.defined() && !right.tensor.defined();
  const c10::IValue second = scalar ? c10::IValue(right.number) : c10::IValue(right.as_tensor());
  const char* overload = scalar ? op.with_scalar : op.with_tensor;
  if (op.alpha) return run_for_tensor(L, op.name, overload, {left.as_tensor(), second, 1});
  return run_for_tensor(L, op.name, overload, {left.as_tensor(), second});
}

/// What Lua computes from the plain values; errors are Lua's (`n // 0`).
void push_plain_result(lua_State* L, int lua_op, int operands) {
  specialize_number(L, 1);
  if (operands == 2) specialize_number(L, 2);
  lua_pushvalue(L, 1);
  if (operands == 2) lua_pushvalue(L, 2);
  lua_arith(L, lua_op);
}

template <const Arithmetic& op>
int arithmetic(lua_State* L) {
  lua_settop(L, 2);
  if (hand_to_tensor(L, op.event)) return 1;
  if (!can_be_recorded(L)) {
    push_plain_result(L, op.lua_op, 2);
    return 1;
  }
  const NumericOperand left = read_operand(L, 1), right = read_operand(L, 2);
  const auto value = [](const NumericOperand& o) { return o.tensor.defined() ? o.tensor.item() : o.number; };
  push_scalar(L, value(left));
  push_scalar(L, value(right));
  lua_arith(L, op.lua_op);
  const at::Scalar plain = *test_scalar(L, -1);
  at::Tensor result = record(L, op, left, right);
  const auto same_float = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  const bool same = plain.isIntegral(false) ? result.item().toLong() == plain.toLong()
                                            : same_float(result.item().toDouble(), plain.toDouble());
  if (!same) {  // where ATen should ever round otherwise
    push_plain_result(L, op.lua_op, 2);
    return 1;
  }
  push_number(L, std::move(result));
  return 1;
}

int negate(lua_State* L) {
  lua_settop(L, 1);
  const at::Tensor* number = test_number(L, 1);
  if (number)
    push_number(L, run_for_tensor(L, "aten::neg", "", {*number}));
  else
    push_plain_result(L, LUA_OPUNM, 1);
  return 1;
}

struct Bitwise {
  const char* event;
  int lua_op;
  const char* name;  // aten; null for shifts
};

/// Of integers. A shift by a number of bits that stands in the script multiplies or divides, where no sign is in the
/// way.
std::optional<at::Tensor> record(lua_State* L, const Bitwise& op, NumericOperand left, NumericOperand right) {
  if (!left.whole || !right.whole) return std::nullopt;
  if (op.name) {
    if (!left.symbolic()) std::swap(left, right);
    return run_for_tensor(L, op.name, right.symbolic() ? "Tensor" : "Scalar",
                          {left.tensor, right.symbolic() ? c10::IValue(right.tensor) : c10::IValue(right.number)});
  }
  const int64_t bits = right.symbolic() ? -1 : right.number.toLong();
  if (!left.symbolic() || bits < 0 || bits > 62) return std::nullopt;
  const at::Scalar factor = int64_t{1} << bits;
  if (op.lua_op == LUA_OPSHL) return run_for_tensor(L, "aten::mul", "Scalar", {left.tensor, factor});
  if (capture::range_of(left.tensor).min < 0) return std::nullopt;
  return run_for_tensor(L, "aten::floor_divide", "Scalar", {left.tensor, factor});
}

template <const Bitwise& op>
int bitwise(lua_State* L) {
  lua_settop(L, 2);
  if (hand_to_tensor(L, op.event)) return 1;
  if (can_be_recorded(L)) {
    if (auto result = record(L, op, read_operand(L, 1), read_operand(L, 2))) {
      push_number(L, std::move(*result));
      return 1;
    }
  }
  push_plain_result(L, op.lua_op, 2);
  return 1;
}

int invert(lua_State* L) {
  lua_settop(L, 1);
  const at::Tensor* number = test_number(L, 1);
  if (number && is_whole_number(*number))
    push_number(L, run_for_tensor(L, "aten::bitwise_not", "", {*number}));
  else
    push_plain_result(L, LUA_OPBNOT, 1);
  return 1;
}

int concat(lua_State* L) {
  specialize_number(L, 1);
  specialize_number(L, 2);
  lua_settop(L, 2);
  lua_concat(L, 2);
  return 1;
}

/// Of code that is not rewritten: a boolean must come out.
template <int lua_op>
int compare(lua_State* L) {
  lua_settop(L, 2);
  if (can_be_recorded(L)) {
    compare_numbers(L, lua_op == LUA_OPLT ? "lt" : lua_op == LUA_OPLE ? "le" : "eq");
    specialize_number(L, -1);
    return 1;
  }
  specialize_number(L, 1);
  specialize_number(L, 2);
  lua_pushboolean(L, lua_compare(L, 1, 2, lua_op));
  return 1;
}

constexpr Arithmetic add{"__add", LUA_OPADD, "aten::add", "Scalar", "Tensor", true, false};
constexpr Arithmetic subtract{"__sub", LUA_OPSUB, "aten::sub", "Scalar", "Tensor", true, false};
constexpr Arithmetic multiply{"__mul", LUA_OPMUL, "aten::mul", "Scalar", "Tensor", false, false};
constexpr Arithmetic divide{"__div", LUA_OPDIV, "aten::div", "Scalar", "Tensor", false, true};
constexpr Arithmetic modulo{"__mod", LUA_OPMOD, "aten::remainder", "Scalar", "Tensor", false, false};
constexpr Arithmetic floor_divide{"__idiv", LUA_OPIDIV, "aten::floor_divide", "Scalar", "", false, false};
constexpr Arithmetic power{"__pow", LUA_OPPOW, nullptr, nullptr, nullptr, false, true};  // record_math
constexpr Bitwise bit_and{"__band", LUA_OPBAND, "aten::bitwise_and"};
constexpr Bitwise bit_or{"__bor", LUA_OPBOR, "aten::bitwise_or"};
constexpr Bitwise bit_xor{"__bxor", LUA_OPBXOR, "aten::bitwise_xor"};
constexpr Bitwise shift_left{"__shl", LUA_OPSHL, nullptr};
constexpr Bitwise shift_right{"__shr", LUA_OPSHR, nullptr};

}  // namespace

namespace {

constexpr double kBeyondIntegers = 9223372036854775808.0;  // 2^63

at::Tensor record_comparison(lua_State* L, const std::string& name, const at::Tensor& left,
                             const NumericOperand& right) {
  const bool scalar = !right.tensor.defined();
  return run_for_tensor(L, ("aten::" + name).c_str(), scalar ? "Scalar" : "Tensor",
                        {left, scalar ? c10::IValue(right.number) : c10::IValue(right.tensor)});
}

/// A whole symbol against a float that stands in the script. Nothing where neither can be put so that int64 compares
/// them.
std::optional<bool> make_whole(const std::string& name, NumericOperand& right) {
  const double real = right.number.toDouble();
  const bool equal = name == "eq", differ = name == "ne";
  if (std::isnan(real)) return differ;
  if (std::floor(real) != real && (equal || differ)) return differ;
  if (real >= kBeyondIntegers) return differ || name[0] == 'l';
  if (real < -kBeyondIntegers) return differ || name[0] == 'g';
  const bool rounds_up = name == "lt" || name == "ge";  // n < 2.5 is n < 3, n <= 2.5 is n <= 2
  right.number = static_cast<int64_t>(rounds_up ? std::ceil(real) : std::floor(real));
  right.whole = true;
  return std::nullopt;
}

/// A symbol that is a float against an integer that stands in the script: against the float next to it, on the side
/// that keeps the order.
std::optional<bool> make_float(const std::string& name, NumericOperand& right) {
  const int64_t whole = right.number.toLong();
  const double nearest = static_cast<double>(whole);
  const int side = nearest >= kBeyondIntegers || static_cast<int64_t>(nearest) > whole ? 1
                   : static_cast<int64_t>(nearest) < whole                             ? -1
                                                                                       : 0;
  if (side != 0 && (name == "eq" || name == "ne")) return name == "ne";
  const bool wants_above = name == "lt" || name == "ge";
  double real = nearest;
  if (side > 0 && !wants_above) real = std::nextafter(nearest, -INFINITY);
  if (side < 0 && wants_above) real = std::nextafter(nearest, INFINITY);
  right.number = real;
  right.whole = false;
  return std::nullopt;
}

at::Tensor both(lua_State* L, const at::Tensor& a, const at::Tensor& b) {
  return run_for_tensor(L, "aten::logical_and", "", {a, b});
}
at::Tensor either(lua_State* L, const at::Tensor& a, const at::Tensor& b) {
  return run_for_tensor(L, "aten::logical_or", "", {a, b});
}

/// Two symbols, a whole one and a float, as Lua compares them: by their values. As doubles they are ordered as they
/// are, unless the whole one was rounded to the float; then the float is whole too, and int64 decides.
at::Tensor record_mixed(lua_State* L, const std::string& name, const at::Tensor& whole, const at::Tensor& real) {
  if (name == "ne") return run_for_tensor(L, "aten::logical_not", "", {record_mixed(L, "eq", whole, real)});
  const at::Tensor rounded = as_double(L, whole);
  const at::Tensor tie = run_for_tensor(L, "aten::eq", "Tensor", {rounded, real});
  const at::Tensor beyond = run_for_tensor(L, "aten::ge", "Scalar", {real, kBeyondIntegers});
  const at::Tensor as_whole = run_for_tensor(L, "aten::to", "dtype", {real, at::kLong, false, false, c10::IValue()});
  const at::Tensor exact = run_for_tensor(L, ("aten::" + name).c_str(), "Tensor", {whole, as_whole});
  const bool less = name[0] == 'l';
  const at::Tensor decided =
      less ? either(L, beyond, exact) : both(L, run_for_tensor(L, "aten::logical_not", "", {beyond}), exact);
  if (name == "eq") return both(L, tie, decided);
  return either(L, run_for_tensor(L, less ? "aten::lt" : "aten::gt", "Tensor", {rounded, real}), both(L, tie, decided));
}

/// The doubles of sizes are exact where no size is beyond 2^53, which becomes a guard.
bool is_exact_as_double(lua_State* L, const at::Tensor& whole) {
  constexpr int64_t most = int64_t{1} << 53;
  const int64_t now = whole.item().toLong();
  if (now > most || now < -most || !capture::follows_from_sizes(whole)) return false;
  for (const char* const bound : {"le", "ge"}) {
    NumericOperand limit;
    limit.number = bound[0] == 'l' ? most : -most;
    limit.whole = true;
    push_number(L, record_comparison(L, bound, whole, limit));
    specialize_number(L, -1);
    lua_pop(L, 1);
  }
  return true;
}

const char* mirrored(std::string_view name) {
  return name == "lt"   ? "gt"
         : name == "le" ? "ge"
         : name == "gt" ? "lt"
         : name == "ge" ? "le"
         : name == "eq" ? "eq"
                        : "ne";
}

/// `left` is a symbol. Lua compares an integer and a float by their values, not as floats.
void push_comparison(lua_State* L, const std::string& name, NumericOperand left, NumericOperand right) {
  if (left.whole != right.whole && !right.tensor.defined()) {
    const std::optional<bool> decided = left.whole ? make_whole(name, right) : make_float(name, right);
    if (decided) return lua_pushboolean(L, *decided);
  } else if (left.whole != right.whole) {
    const at::Tensor whole = left.whole ? left.tensor : right.tensor, real = left.whole ? right.tensor : left.tensor;
    if (!is_exact_as_double(L, whole))
      return push_number(L, record_mixed(L, left.whole ? name : mirrored(name), whole, real));
    left.make_double(L);
    right.make_double(L);
  }
  push_number(L, record_comparison(L, name, left.tensor, right));
}

}  // namespace

void compare_numbers(lua_State* L, const char* method) {
  const bool order = std::strcmp(method, "eq") != 0 && std::strcmp(method, "ne") != 0;
  if (can_be_recorded(L)) {
    NumericOperand left = read_operand(L, 1), right = read_operand(L, 2);
    const bool swap = !left.tensor.defined();
    const std::string name = swap ? mirrored(method) : method;
    if (swap) std::swap(left, right);
    push_comparison(L, name, left, right);
    return;
  }
  specialize_number(L, 1);
  specialize_number(L, 2);
  if (!order) {
    lua_pushboolean(L, lua_compare(L, 1, 2, LUA_OPEQ) == (std::strcmp(method, "eq") == 0));
    return;
  }
  const bool swap = method[0] == 'g', equal = method[1] == 'e';
  lua_pushboolean(L, lua_compare(L, swap ? 2 : 1, swap ? 1 : 2, equal ? LUA_OPLE : LUA_OPLT));
}

void open_numbers(lua_State* L) {
  static const luaL_Reg functions[] = {{"__tostring", guarded<number_tostring>},
                                       {"__add", guarded<arithmetic<add>>},
                                       {"__sub", guarded<arithmetic<subtract>>},
                                       {"__mul", guarded<arithmetic<multiply>>},
                                       {"__div", guarded<arithmetic<divide>>},
                                       {"__mod", guarded<arithmetic<modulo>>},
                                       {"__idiv", guarded<arithmetic<floor_divide>>},
                                       {"__pow", guarded<arithmetic<power>>},
                                       {"__unm", guarded<negate>},
                                       {"__band", guarded<bitwise<bit_and>>},
                                       {"__bor", guarded<bitwise<bit_or>>},
                                       {"__bxor", guarded<bitwise<bit_xor>>},
                                       {"__shl", guarded<bitwise<shift_left>>},
                                       {"__shr", guarded<bitwise<shift_right>>},
                                       {"__bnot", guarded<invert>},
                                       {"__concat", guarded<concat>},
                                       {"__lt", guarded<compare<LUA_OPLT>>},
                                       {"__le", guarded<compare<LUA_OPLE>>},
                                       {"__eq", guarded<compare<LUA_OPEQ>>},
                                       {nullptr, nullptr}};
  luaL_newlib(L, functions);
  lua_pushliteral(L, "number");
  lua_setfield(L, -2, "__name");
  lua_pushliteral(L, "number");
  lua_setfield(L, -2, "__metatable");
  set_number_metatable(L);
}

}  // namespace triage::lua
