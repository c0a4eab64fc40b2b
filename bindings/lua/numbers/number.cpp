#include "bindings/lua/numbers/number.h"

#include "bindings/lua/state.h"
#include "bindings/lua/tensors/call.h"
#include "bindings/lua/tensors/convert.h"
#include "runtime/capture/numbers.h"
#include "runtime/capture/recorder.h"

#include <ATen/ATen.h>

#include <cmath>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace triage::lua {
namespace {

/// `tensor` is undefined once the box was finalized.
struct NumberBox {
  at::Tensor tensor;
};

const char number_metatable = 0;  // its address is the registry key

NumberBox* test_box(lua_State* L, int index) {
  if (lua_type(L, index) != LUA_TUSERDATA || !lua_getmetatable(L, index)) return nullptr;
  lua_rawgetp(L, LUA_REGISTRYINDEX, &number_metatable);
  const bool same = lua_rawequal(L, -1, -2);
  lua_pop(L, 2);
  return same ? static_cast<NumberBox*>(lua_touserdata(L, index)) : nullptr;
}

void push_box(lua_State* L, at::Tensor tensor) {
  luaL_checkstack(L, 4, "too many numbers");
  new (lua_newuserdatauv(L, sizeof(NumberBox), 0)) NumberBox{std::move(tensor)};
  lua_rawgetp(L, LUA_REGISTRYINDEX, &number_metatable);
  lua_setmetatable(L, -2);
}

int number_gc(lua_State* L) {
  if (NumberBox* box = test_box(L, 1)) box->tensor = at::Tensor();
  return 0;
}

int number_tostring(lua_State* L) {
  settle_number(L, 1);
  luaL_tolstring(L, 1, nullptr);
  return 1;
}

bool is_plain_number(lua_State* L, int index) { return lua_type(L, index) == LUA_TNUMBER; }

at::Tensor as_double(const at::Tensor& number) {
  if (number.scalar_type() == at::kDouble) return number;
  return run_for_tensor("aten::to", "dtype", {number, at::kDouble, false, false, c10::IValue()});
}

/// One operand of arithmetic: a tensor of the graph, or a plain number.
struct Operand {
  at::Tensor tensor;
  at::Scalar number;
  bool whole = false;

  void make_double() {
    if (tensor.defined())
      tensor = as_double(tensor);
    else
      number = number.toDouble();
    whole = false;
  }
  /// A tensor in any case: a plain number becomes a constant of the graph.
  at::Tensor as_tensor() const {
    if (tensor.defined()) return tensor;
    const at::Tensor constant = at::scalar_tensor(number, at::TensorOptions(whole ? at::kLong : at::kDouble));
    capture::Recorder::current()->add_literal(constant);
    return constant;
  }
};

Operand read_operand(lua_State* L, int index) {
  Operand operand;
  if (const at::Tensor* tensor = test_number(L, index)) {
    operand.tensor = *tensor;
    operand.whole = is_whole_number(*tensor);
  } else {
    operand.number = *test_scalar(L, index);
    operand.whole = lua_isinteger(L, index);
  }
  return operand;
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
  const bool left = test_number(L, 1), right = test_number(L, 2);
  return (left && (right || is_plain_number(L, 2))) || (right && is_plain_number(L, 1));
}

/// With a tensor on the other side it is the tensor's business.
bool hand_to_tensor(lua_State* L, const char* event) {
  const int tensor = test_tensor(L, 1) ? 1 : test_tensor(L, 2) ? 2 : 0;
  if (!tensor || luaL_getmetafield(L, tensor, event) == LUA_TNIL) return false;
  lua_insert(L, 1);
  lua_call(L, 2, 1);
  return true;
}

at::Tensor record(const Arithmetic& op, Operand left, Operand right) {
  if (op.as_double || !left.whole || !right.whole) {
    left.make_double();
    right.make_double();
  }
  if (!left.tensor.defined() && (op.lua_op == LUA_OPADD || op.lua_op == LUA_OPMUL)) std::swap(left, right);
  if (!left.tensor.defined() && op.lua_op == LUA_OPSUB)
    return run_for_tensor("aten::rsub", "Scalar", {right.tensor, left.number, 1});
  const bool scalar = left.tensor.defined() && !right.tensor.defined();
  const c10::IValue second = scalar ? c10::IValue(right.number) : c10::IValue(right.as_tensor());
  const char* overload = scalar ? op.with_scalar : op.with_tensor;
  if (op.alpha) return run_for_tensor(op.name, overload, {left.as_tensor(), second, 1});
  return run_for_tensor(op.name, overload, {left.as_tensor(), second});
}

/// What Lua computes from the plain values; errors are Lua's (`n // 0`).
void push_plain_result(lua_State* L, int lua_op, int operands) {
  settle_number(L, 1);
  if (operands == 2) settle_number(L, 2);
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
  const Operand left = read_operand(L, 1), right = read_operand(L, 2);
  const auto value = [](const Operand& o) { return o.tensor.defined() ? o.tensor.item() : o.number; };
  push_scalar(L, value(left));
  push_scalar(L, value(right));
  lua_arith(L, op.lua_op);
  const at::Scalar plain = *test_scalar(L, -1);
  at::Tensor result = record(op, left, right);
  const bool same = plain.isIntegral(false) ? result.item().toLong() == plain.toLong()
                                            : result.item().toDouble() == plain.toDouble() ||
                                                  result.item().toDouble() != result.item().toDouble();
  if (!same) {  // the last bit of a power, say
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
    push_number(L, run_for_tensor("aten::neg", "", {*number}));
  else
    push_plain_result(L, LUA_OPUNM, 1);
  return 1;
}

template <int lua_op>
int bitwise(lua_State* L) {
  constexpr const char* event = lua_op == LUA_OPBAND   ? "__band"
                                : lua_op == LUA_OPBOR  ? "__bor"
                                : lua_op == LUA_OPBXOR ? "__bxor"
                                : lua_op == LUA_OPSHL  ? "__shl"
                                                       : "__shr";
  lua_settop(L, 2);
  if (!hand_to_tensor(L, event)) push_plain_result(L, lua_op, 2);
  return 1;
}

int invert(lua_State* L) {
  lua_settop(L, 1);
  push_plain_result(L, LUA_OPBNOT, 1);
  return 1;
}

int concat(lua_State* L) {
  settle_number(L, 1);
  settle_number(L, 2);
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
    settle_number(L, -1);
    return 1;
  }
  settle_number(L, 1);
  settle_number(L, 2);
  lua_pushboolean(L, lua_compare(L, 1, 2, lua_op));
  return 1;
}

constexpr Arithmetic add{"__add", LUA_OPADD, "aten::add", "Scalar", "Tensor", true, false};
constexpr Arithmetic subtract{"__sub", LUA_OPSUB, "aten::sub", "Scalar", "Tensor", true, false};
constexpr Arithmetic multiply{"__mul", LUA_OPMUL, "aten::mul", "Scalar", "Tensor", false, false};
constexpr Arithmetic divide{"__div", LUA_OPDIV, "aten::div", "Scalar", "Tensor", false, true};
constexpr Arithmetic remainder{"__mod", LUA_OPMOD, "aten::remainder", "Scalar", "Tensor", false, false};
constexpr Arithmetic floor_divide{"__idiv", LUA_OPIDIV, "aten::floor_divide", "Scalar", "", false, false};
constexpr Arithmetic power{"__pow", LUA_OPPOW, "aten::pow", "Tensor_Scalar", "Tensor_Tensor", false, true};

}  // namespace

bool is_whole_number(const at::Tensor& number) { return number.scalar_type() == at::kLong; }

const at::Tensor* test_symbolic(lua_State* L, int index) {
  const NumberBox* box = test_box(L, index);
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
  if (auto* recorder = capture::Recorder::current()) recorder->read_rank(tensor);
  lua_createtable(L, static_cast<int>(tensor.dim()), 0);
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    push_size(L, tensor, dim);
    lua_rawseti(L, -2, static_cast<lua_Integer>(dim + 1));
  }
}

void push_numel(lua_State* L, const at::Tensor& tensor) {
  if (auto* recorder = capture::Recorder::current()) recorder->read_rank(tensor);
  lua_pushinteger(L, 1);
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    push_size(L, tensor, dim);
    lua_arith(L, LUA_OPMUL);
  }
}

void settle_number(lua_State* L, int index) {
  const NumberBox* box = test_box(L, index);
  if (!box) return;
  index = lua_absindex(L, index);
  const at::Tensor tensor = box->tensor;
  if (!tensor.defined()) luaL_error(L, "this number was closed");
  capture::settle(tensor);
  push_scalar(L, tensor.item());
  lua_replace(L, index);
}

void compare_numbers(lua_State* L, const char* method) {
  const bool order = std::strcmp(method, "eq") != 0 && std::strcmp(method, "ne") != 0;
  if (can_be_recorded(L)) {
    Operand left = read_operand(L, 1), right = read_operand(L, 2);
    const bool swap = !left.tensor.defined();
    const std::string_view given = method;
    const std::string name = !swap           ? std::string(given)
                             : given == "lt" ? "gt"
                             : given == "le" ? "ge"
                             : given == "gt" ? "lt"
                             : given == "ge" ? "le"
                                             : std::string(given);
    if (swap) std::swap(left, right);
    const bool scalar = !right.tensor.defined();
    const double real = scalar && !right.whole ? right.number.toDouble() : 0.5;
    if (left.whole && scalar && !right.whole && std::floor(real) == real && std::abs(real) < 1e15) {
      right.number = static_cast<int64_t>(real);
    } else if (left.whole != right.whole) {  // as doubles, which are exact below 2^53
      left.make_double();
      right.make_double();
    }
    const std::string op = "aten::" + name;
    push_number(L, run_for_tensor(op.c_str(), scalar ? "Scalar" : "Tensor",
                                  {left.tensor, scalar ? c10::IValue(right.number) : c10::IValue(right.tensor)}));
    return;
  }
  settle_number(L, 1);
  settle_number(L, 2);
  if (!order) {
    lua_pushboolean(L, lua_compare(L, 1, 2, LUA_OPEQ) == (std::strcmp(method, "eq") == 0));
    return;
  }
  const bool swap = method[0] == 'g', equal = method[1] == 'e';
  lua_pushboolean(L, lua_compare(L, swap ? 2 : 1, swap ? 1 : 2, equal ? LUA_OPLE : LUA_OPLT));
}

void open_numbers(lua_State* L) {
  static const luaL_Reg functions[] = {{"__gc", guarded<number_gc>},
                                       {"__tostring", guarded<number_tostring>},
                                       {"__add", guarded<arithmetic<add>>},
                                       {"__sub", guarded<arithmetic<subtract>>},
                                       {"__mul", guarded<arithmetic<multiply>>},
                                       {"__div", guarded<arithmetic<divide>>},
                                       {"__mod", guarded<arithmetic<remainder>>},
                                       {"__idiv", guarded<arithmetic<floor_divide>>},
                                       {"__pow", guarded<arithmetic<power>>},
                                       {"__unm", guarded<negate>},
                                       {"__band", guarded<bitwise<LUA_OPBAND>>},
                                       {"__bor", guarded<bitwise<LUA_OPBOR>>},
                                       {"__bxor", guarded<bitwise<LUA_OPBXOR>>},
                                       {"__shl", guarded<bitwise<LUA_OPSHL>>},
                                       {"__shr", guarded<bitwise<LUA_OPSHR>>},
                                       {"__bnot", guarded<invert>},
                                       {"__concat", guarded<concat>},
                                       {"__lt", guarded<compare<LUA_OPLT>>},
                                       {"__le", guarded<compare<LUA_OPLE>>},
                                       {"__eq", guarded<compare<LUA_OPEQ>>},
                                       {nullptr, nullptr}};
  luaL_newlib(L, functions);
  lua_pushliteral(L, "symbolic number");
  lua_setfield(L, -2, "__name");
  lua_pushliteral(L, "number");
  lua_setfield(L, -2, "__metatable");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &number_metatable);
}

}  // namespace triage::lua
