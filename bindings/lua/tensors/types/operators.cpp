#include "bindings/lua/tensors/types/operators.h"

#include "bindings/lua/tensors/calls/call.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/guarded.h"
#include "bindings/lua/values/number.h"
#include "bindings/lua/values/tensor.h"

#include <cstring>
#include <string_view>

namespace triage::lua {
namespace {

/// One Lua operator. With a number on the left, `reflected` is called with the operands in turn, or, where it takes the
/// number first itself (`pow`), as they are.
struct Binary {
  const char* sign;
  const char* name;
  const char* reflected;
  bool swaps;
};

constexpr Binary add{"+", "aten::add", "aten::add", true};
constexpr Binary subtract{"-", "aten::sub", "aten::rsub", true};
constexpr Binary multiply{"*", "aten::mul", "aten::mul", true};
constexpr Binary floor_divide{"//", "aten::floor_divide", "aten::floor_divide", false};
constexpr Binary remainder{"%", "aten::remainder", "aten::remainder", false};
constexpr Binary power{"^", "aten::pow", "aten::pow", false};
constexpr Binary bitwise_and{"&", "aten::bitwise_and", "aten::bitwise_and", true};
constexpr Binary bitwise_or{"|", "aten::bitwise_or", "aten::bitwise_or", true};
constexpr Binary bitwise_xor{"~", "aten::bitwise_xor", "aten::bitwise_xor", true};
constexpr Binary left_shift{"<<", "aten::bitwise_left_shift", "aten::bitwise_left_shift", false};
constexpr Binary right_shift{">>", "aten::bitwise_right_shift", "aten::bitwise_right_shift", false};
constexpr Binary less{"<", "aten::lt", "aten::gt", true};
constexpr Binary less_equal{"<=", "aten::le", "aten::ge", true};
constexpr Binary greater{">", "aten::gt", "aten::lt", true};
constexpr Binary greater_equal{">=", "aten::ge", "aten::le", true};
constexpr Binary equal{"==", "aten::eq", "aten::eq", true};
constexpr Binary not_equal{"~=", "aten::ne", "aten::ne", true};

bool is_any_tensor(lua_State* L, int index) { return test_tensor(L, index) || is_guarded(L, index); }

bool is_operand(lua_State* L, int index) {
  return is_any_tensor(L, index) || test_symbolic(L, index) || test_scalar(L, index);
}

/// Errors unless one side is a tensor and the other a tensor, number or boolean; what metamethods called by hand hit.
void check_operands(lua_State* L, const char* sign) {
  bool one_tensor = is_any_tensor(L, 1) || is_any_tensor(L, 2);
  if (one_tensor && is_operand(L, 1) && is_operand(L, 2)) return;
  throw std::invalid_argument(std::string("`") + sign + "` takes tensors and numbers, got " + describe(L, 1) + " and " +
                              describe(L, 2) +
                              (lua_isnone(L, 2) ? "; a method is called with ':', as in x:eq(...)" : ""));
}

int call_named(lua_State* L, const char* name, int first, int count) {
  const Operator* op = find_operator(name);
  if (!op) throw std::runtime_error(std::string("this LibTorch has no operator ") + name);
  return call_operator(L, *op, first, count, false);
}

/// `z > 3 & z < 5` is `z > (3 & z) < 5`.
void check_bits(lua_State* L, const Binary& op) {
  const bool bitwise =
      std::string_view(op.sign) == "&" || std::string_view(op.sign) == "|" || std::string_view(op.sign) == "~";
  for (int i = 1; bitwise && i <= 2; ++i) {
    const at::Tensor* tensor = test_tensor(L, i);
    if (tensor && (tensor->is_floating_point() || tensor->is_complex()))
      throw std::invalid_argument(std::string("`") + op.sign + "` takes masks and integers, got " + describe(L, 1) +
                                  " and " + describe(L, 2) + "; `" + op.sign +
                                  "` binds tighter than < and >: write (z > 3) " + op.sign + " (z < 5)");
  }
}

/// `m ^ n` of masks, which is the exclusive or in Python.
void check_power(lua_State* L, const Binary& op) {
  if (std::string_view(op.sign) != "^") return;
  const at::Tensor *base = test_tensor(L, 1), *exponent = test_tensor(L, 2);
  if (base && exponent && base->scalar_type() == at::kBool && exponent->scalar_type() == at::kBool)
    throw std::invalid_argument("`^` is the power, and takes no two masks; the exclusive or is m ~ n, or m ~= n");
}

template <const Binary& op>
int binary(lua_State* L) {
  check_operands(L, op.sign);
  check_bits(L, op);
  check_power(L, op);
  lua_settop(L, 2);
  if (is_any_tensor(L, 1)) return call_named(L, op.name, 1, 2);
  if (op.swaps) lua_insert(L, 1);  // [1] = tensor, [2] = number
  return call_named(L, op.reflected, 1, 2);
}

int divide(lua_State* L) {
  check_operands(L, "/");
  lua_settop(L, 2);
  if (is_any_tensor(L, 1)) return call_named(L, "aten::div", 1, 2);
  call_named(L, "aten::reciprocal", 2, 1);
  lua_replace(L, 2);
  lua_insert(L, 1);
  return call_named(L, "aten::mul", 1, 2);
}

int negate(lua_State* L) {
  if (!is_guarded(L, 1)) check_tensor(L, 1);
  return call_named(L, "aten::neg", 1, 1);
}

int invert(lua_State* L) {
  if (!is_guarded(L, 1)) check_tensor(L, 1);
  return call_named(L, "aten::bitwise_not", 1, 1);
}

/// `x:lt(3)`, `x:lt(3, {out = m})`, and from the source rewriter `lt(3, x)`.
template <const Binary& op>
int comparison(lua_State* L) {
  if (lua_gettop(L) > 2) return call_named(L, op.name, 1, lua_gettop(L));
  return binary<op>(L);
}

/// Unlike the others, equality is defined for all values: what is neither tensor nor number differs from every tensor.
template <const Binary& op>
int equality(lua_State* L) {
  bool comparable = lua_gettop(L) != 2 || (is_operand(L, 1) && is_operand(L, 2));
  if (comparable) return comparison<op>(L);
  lua_pushboolean(L, !std::strcmp(op.sign, "~="));
  return 1;
}

const luaL_Reg comparisons[] = {{"lt", guarded<comparison<less>>},
                                {"le", guarded<comparison<less_equal>>},
                                {"gt", guarded<comparison<greater>>},
                                {"ge", guarded<comparison<greater_equal>>},
                                {"eq", guarded<equality<equal>>},
                                {"ne", guarded<equality<not_equal>>},
                                {nullptr, nullptr}};

}  // namespace

void add_metamethods(lua_State* L) {
  static const luaL_Reg functions[] = {{"__add", guarded<binary<add>>},
                                       {"__sub", guarded<binary<subtract>>},
                                       {"__mul", guarded<binary<multiply>>},
                                       {"__div", guarded<divide>},
                                       {"__idiv", guarded<binary<floor_divide>>},
                                       {"__mod", guarded<binary<remainder>>},
                                       {"__pow", guarded<binary<power>>},
                                       {"__unm", guarded<negate>},
                                       {"__bnot", guarded<invert>},
                                       {"__band", guarded<binary<bitwise_and>>},
                                       {"__bor", guarded<binary<bitwise_or>>},
                                       {"__bxor", guarded<binary<bitwise_xor>>},
                                       {"__shl", guarded<binary<left_shift>>},
                                       {"__shr", guarded<binary<right_shift>>},
                                       {nullptr, nullptr}};
  luaL_setfuncs(L, functions, 0);
}

void add_comparisons(lua_State* L) { add_methods(L, comparisons); }

bool is_comparison(lua_State* L, int index) {
  const lua_CFunction function = lua_tocfunction(L, index);
  const luaL_Reg* method = comparisons;
  while (method->func && method->func != function) ++method;
  return method->func;
}

}  // namespace triage::lua
