#include "bindings/lua/semantics/intrinsics.h"

#include <string>
#include <string_view>

#include "bindings/lua/semantics/closing.h"
#include "bindings/lua/semantics/created.h"
#include "bindings/lua/semantics/natural_functions.h"
#include "bindings/lua/semantics/tensor_semantics.h"
#include "bindings/lua/state/effects.h"
#include "bindings/lua/state/stack.h"

namespace triage::lua {
namespace {

constexpr lua_Integer kColumns = 65536;

const char* type_name(lua_State* L, int index) {
  const int type = lua_type(L, index);
  const bool can_be_named = type == LUA_TTABLE || type == LUA_TUSERDATA;
  if (!can_be_named || luaL_getmetafield(L, index, "__name") == LUA_TNIL) return luaL_typename(L, index);
  const char* const name = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : luaL_typename(L, index);
  return name;  // stays on the stack: the caller raises an error
}

int raise_at(lua_State* L, lua_Integer position, const std::string& message) {
  push_where(L, 1, position, false);
  lua_pushlstring(L, message.data(), message.size());
  lua_concat(L, 2);
  return lua_error(L);
}

bool has_tensor(lua_State* L) { return is_tensor(L, 1) || is_tensor(L, 2); }

/// The result of a comparison stands on top: decides where it is a condition at once (argument 4).
int finish_comparison(lua_State* L) {
  if (!lua_toboolean(L, 4) || !is_tensor(L, -1)) return 1;
  push_where(L, 1, lua_tointeger(L, 3), true);
  push_truth(L, lua_gettop(L) - 1, lua_tostring(L, -1));
  return 1;
}

int compare_as_tensors(lua_State* L, const char* method) {
  lua_settop(L, 4);
  compare_tensors(L, method);
  return finish_comparison(L);
}

/// What comes of a metamethod's result: a boolean or the opposite, or, as of a comparison of tensors, a tensor or
/// symbol as it is.
enum Outcome : lua_KContext { truth, opposite, as_it_is };

int finish_metamethod(lua_State* L, int, lua_KContext outcome) {
  if (is_tensor(L, -1)) {
    if (outcome == as_it_is) return finish_comparison(L);
    push_where(L, 1, lua_tointeger(L, 3), true);
    push_truth(L, lua_gettop(L) - 1, lua_tostring(L, -1));
  }
  lua_pushboolean(L, lua_toboolean(L, -1) != static_cast<int>(outcome == opposite));
  return 1;
}

/// The value on top: a function, or with a metamethod to be called like one.
bool is_callable(lua_State* L) {
  if (lua_isfunction(L, -1)) return true;
  if (luaL_getmetafield(L, -1, "__call") == LUA_TNIL) return false;
  lua_pop(L, 1);
  return true;
}

/// Pushes the metamethod `event` of the value at `first`, else of that at `second`, and the two values. False when
/// there is none.
bool push_metamethod(lua_State* L, const char* event, int first, int second, lua_Integer position) {
  if (luaL_getmetafield(L, first, event) == LUA_TNIL && luaL_getmetafield(L, second, event) == LUA_TNIL) return false;
  if (!is_callable(L))
    raise_at(L, position,
             "attempt to call a " + std::string(type_name(L, -1)) + " value (metamethod '" + (event + 2) + "')");
  lua_pushvalue(L, first);
  lua_pushvalue(L, second);
  return true;
}

/// The result of metamethod `event` (finish_metamethod). Returns -1 when there is none.
int call_metamethod(lua_State* L, const char* event, int first, int second, Outcome outcome) {
  lua_settop(L, 4);
  if (!push_metamethod(L, event, first, second, lua_tointeger(L, 3))) return -1;
  lua_callk(L, 2, 1, outcome, finish_metamethod);
  return finish_metamethod(L, LUA_OK, outcome);
}

struct Ordering {
  const char* method;  // of tensors
  int operation;       // of lua_compare
  const char* event;
  bool swapped;  // `a > b` is `b < a`, in messages too
};
constexpr Ordering kLess{"lt", LUA_OPLT, "__lt", false};
constexpr Ordering kLessEqual{"le", LUA_OPLE, "__le", false};
constexpr Ordering kGreater{"gt", LUA_OPLT, "__lt", true};
constexpr Ordering kGreaterEqual{"ge", LUA_OPLE, "__le", true};

/// Whether the Lua library was built to take `not (b < a)` for `a <= b` where there is no `__le`, as Lua 5.3 did. Its
/// headers do not tell.
bool library_takes_lt_for_le() {
  static const bool takes = [] {
    lua_State* const L = luaL_newstate();
    if (!L) return false;
    luaL_openlibs(L);
    const bool ran =
        luaL_dostring(L, "local t = setmetatable({}, {__lt = function() return false end}) return t <= t") == LUA_OK;
    lua_close(L);
    return ran;
  }();
  return takes;
}

/// Values that Lua orders by metamethods, or not at all.
int compare_objects(lua_State* L, const Ordering& order, int first, int second) {
  const int called = call_metamethod(L, order.event, first, second, as_it_is);
  if (called >= 0) return called;
  if (order.operation == LUA_OPLE && library_takes_lt_for_le()) {
    const int negated = call_metamethod(L, "__lt", second, first, opposite);
    if (negated >= 0) return negated;
  }
  const std::string_view left = type_name(L, first), right = type_name(L, second);
  const std::string message = left == right ? "attempt to compare two " + std::string(left) + " values"
                                            : "attempt to compare " + std::string(left) + " with " + std::string(right);
  return raise_at(L, lua_tointeger(L, 3), message);
}

/// Argument 5 is what to write for `a < b < c`, where it stands so: the left side may be the mask that `a < b` gave.
void refuse_chain(lua_State* L) {
  if (lua_type(L, 5) != LUA_TSTRING || !is_tensor(L, 1)) return;
  raise_at(
      L, lua_tointeger(L, 3),
      std::string("a chain of comparisons compares the result of the first one, not the value in the middle; write ") +
          lua_tostring(L, 5));
}

/// Strings are compared byte by byte, or as the locale has it.
void charge_comparison(lua_State* L) {
  constexpr lua_Unsigned free_bytes = 1024;
  if (lua_type(L, 1) == LUA_TSTRING && lua_rawlen(L, 1) > free_bytes) charge_bytes(L, 0);
}

template <const Ordering& order>
int compare_order(lua_State* L) {
  constexpr int first = order.swapped ? 2 : 1, second = order.swapped ? 1 : 2;
  const int type = lua_type(L, 1);
  if (type == lua_type(L, 2) && (type == LUA_TNUMBER || type == LUA_TSTRING)) {
    charge_comparison(L);
    lua_pushboolean(L, lua_compare(L, first, second, order.operation));
    return 1;
  }
  refuse_chain(L);
  if (has_tensor(L)) return compare_as_tensors(L, order.method);
  return compare_objects(L, order, first, second);
}

}  // namespace

int less_than(lua_State* L) {
  lua_settop(L, 2);
  lua_pushinteger(L, 0);
  lua_pushboolean(L, true);  // a condition
  return compare_order<kLess>(L);
}

namespace {

int equal_sizes(lua_State* L);

template <bool negate>
int compare_equality(lua_State* L) {
  refuse_chain(L);
  const int left = lua_type(L, 1), right = lua_type(L, 2);
  const auto may_hold_tensor = [](int type) { return type == LUA_TUSERDATA || type == LUA_TTABLE; };
  if ((may_hold_tensor(left) || may_hold_tensor(right)) && has_tensor(L))
    return compare_as_tensors(L, negate ? "ne" : "eq");
  if (left == right) charge_comparison(L);
  if (left == LUA_TTABLE && right == LUA_TTABLE && lua_isboolean(L, 5)) {  // `x.shape`: each time another list
    lua_pushboolean(L, equal_sizes(L) != static_cast<int>(negate));
    return 1;
  }
  const bool same = left == right && lua_rawequal(L, 1, 2);
  if (!same && left == right && (left == LUA_TTABLE || left == LUA_TUSERDATA)) {
    const int called = call_metamethod(L, "__eq", 1, 2, negate ? opposite : truth);
    if (called >= 0) return called;
  }
  lua_pushboolean(L, same != negate);
  return 1;
}

/// Of two lists of sizes, which a captured graph may find out again.
int equal_sizes(lua_State* L) {
  const lua_Unsigned count = lua_rawlen(L, 1);
  bool same = count == lua_rawlen(L, 2);
  for (lua_Unsigned i = 1; same && i <= count; i++) {
    lua_pushcfunction(L, compare_equality<false>);
    lua_rawgeti(L, 1, static_cast<lua_Integer>(i));
    lua_rawgeti(L, 2, static_cast<lua_Integer>(i));
    lua_pushinteger(L, 0);
    lua_pushboolean(L, true);  // a condition
    lua_call(L, 4, 1);
    same = lua_toboolean(L, -1);
    lua_pop(L, 1);
  }
  return static_cast<int>(same);
}

/// Arguments: value, position, true where a tensor of numbers is read; else it stands for itself, as a value that may
/// be missing.
int test(lua_State* L) {
  if (is_tensor(L, 1) && (lua_toboolean(L, 3) || !is_number_tensor(L, 1))) {
    push_where(L, 1, lua_tointeger(L, 2), true);
    push_truth(L, 1, lua_tostring(L, -1));
    return 1;
  }
  lua_settop(L, 1);
  return 1;
}

// --- concatenation

bool joins(lua_State* L, int index) {
  const int type = lua_type(L, index);
  return type == LUA_TSTRING || type == LUA_TNUMBER;
}

/// Bytes of the string that values first..last make; an estimate for numbers.
size_t joined_size(lua_State* L, int first, int last) {
  constexpr size_t number_size = 24;
  size_t size = 0;
  for (int i = first; i <= last; i++) size += lua_type(L, i) == LUA_TSTRING ? lua_rawlen(L, i) : number_size;
  return size;
}

/// The `index`-th line of the operands' names, as " (local 'x')"; empty where the operand has none.
std::string shown_name(std::string_view names, int index) {
  for (; index > 0; index--) {
    const size_t line = names.find('\n');
    if (line == std::string_view::npos) return "";
    names.remove_prefix(line + 1);
  }
  const std::string_view name = names.substr(0, names.find('\n'));
  return name.empty() ? "" : " (" + std::string(name) + ")";
}

constexpr int kFirstOperand = 3;  // below it: position and names

int refuse_concat(lua_State* L) {
  const int top = lua_gettop(L);
  const int culprit = joins(L, top - 1) ? top : top - 1;
  const std::string name = shown_name(lua_tostring(L, 2), culprit - kFirstOperand);
  const std::string message = "attempt to concatenate a " + std::string(type_name(L, culprit)) + " value" + name;
  return raise_at(L, lua_tointeger(L, 1), message);
}

/// A metamethod's result stands on top: it takes the place of its two operands.
void replace_operands(lua_State* L) {
  const int result = lua_gettop(L);
  lua_replace(L, result - 2);
  lua_settop(L, result - 2);
}

int continue_concat(lua_State* L, int status, lua_KContext context);

/// Joins from the right, as Lua does: runs of strings and numbers at once, anything else by the metamethod of the two.
int join_operands(lua_State* L) {
  while (lua_gettop(L) > kFirstOperand) {
    const int top = lua_gettop(L);
    if (joins(L, top) && joins(L, top - 1)) {
      int first = top - 1;
      while (first > kFirstOperand && joins(L, first - 1)) first--;
      charge_string(L, joined_size(L, first, top));
      lua_concat(L, top - first + 1);
    } else {
      if (!push_metamethod(L, "__concat", top - 1, top, lua_tointeger(L, 1))) return refuse_concat(L);
      lua_callk(L, 2, 1, 0, continue_concat);
      replace_operands(L);
    }
  }
  return 1;
}

int continue_concat(lua_State* L, int, lua_KContext) {
  replace_operands(L);
  return join_operands(L);
}

int concat(lua_State* L) {
  const int count = lua_gettop(L) - 2;
  int joinable = 0;
  while (joinable < count && joins(L, joinable + 1)) joinable++;
  if (joinable == count) {
    charge_string(L, joined_size(L, 1, count));
    lua_settop(L, count);
    lua_concat(L, count);
    return 1;
  }
  lua_rotate(L, 1, 2);
  return join_operands(L);
}

// --- functions, tables and writes

int function(lua_State* L) {
  // `function f() end` may have gone into a global that does not keep it.
  if (!lua_isfunction(L, 1)) return 0;
  const lua_Integer id = lua_tointeger(L, lua_upvalueindex(1)) + lua_tointeger(L, 2);
  lua_settop(L, 1);
  set_function_id(L, 1, id);
  mark_created_function(L, 1);
  return 1;
}

/// What Lua itself takes for a number or key: bounds of loops, indices. Argument 2: what is indexed, where it has a
/// name; a tensor takes numbers as they are.
int plain(lua_State* L) {
  if (lua_type(L, 1) == LUA_TUSERDATA && !(lua_type(L, 2) == LUA_TUSERDATA && is_tensor(L, 2))) specialize(L, 1);
  lua_settop(L, 1);
  return 1;
}

/// A number or key that a table is written at, as `plain`.
int key(lua_State* L) {
  lua_settop(L, 1);
  plain(L);
  check_key(L, 1);
  return 1;
}

/// In the place of a nil in a list of indices.
int refuse_none(lua_State* L) {
  return raise_at(
      L, lua_tointeger(L, 1),
      "a nil ends a list of indices, and what stands behind it is lost; write \"new\" for a new axis (None of "
      "PyTorch), and torch.None for the open end of a range, as in z[{\":\", \"new\", {1, torch.None}}]");
}

int table(lua_State* L) {
  lua_settop(L, 1);
  constexpr lua_Unsigned large = 10'000;  // `{...}` makes such tables at one stroke
  if (lua_rawlen(L, 1) > large) charge_bytes(L, 0);
  mark_created(L, 1);
  return 1;
}

/// Arguments: name, position, for an upvalue how many functions out it was declared, and in natural Lua the chain of
/// the `if` around the place, which selects it; none for a local that inner functions share.
int touch(lua_State* L) {
  constexpr int all = 255;
  go_on_unwinding(L);
  bump_epoch(L);
  if (lua_isnoneornil(L, 1) || (!current_capture() && !current_selection())) return 0;
  const int levels_out = static_cast<int>(lua_tointeger(L, 3));
  const int selecting = levels_out > 0 && lua_istable(L, 4) ? open_branches(L, 4, all) : 0;
  note_variable_write(L, lua_tostring(L, 1), levels_out, selecting);
  return 0;
}

/// Assigning to a value that is no table fails only when the right side has been evaluated. Upvalues: position, or an
/// empty string for the line of the assignment; message.
int fail_assignment(lua_State* L) {
  lua_pushvalue(L, lua_upvalueindex(1));
  if (lua_rawlen(L, -1) == 0) push_where(L, 1, 0, false);
  lua_pushvalue(L, lua_upvalueindex(2));
  lua_concat(L, lua_gettop(L) - 3);
  return lua_error(L);
}

/// Stands for the value at 1, whose name is at 3, until the assignment happens: that then fails as Lua's does.
int push_unassignable(lua_State* L) {
  const bool fails_here = lua_toboolean(L, 4);
  const std::string_view name = lua_tostring(L, 3);
  std::string message = "attempt to index a " + std::string(type_name(L, 1)) + " value";
  if (!name.empty()) message += " (" + std::string(name) + ")";
  lua_newuserdatauv(L, 0, 0);
  lua_createtable(L, 0, 1);
  if (fails_here) {
    push_where(L, 1, 0, false);
  } else {
    lua_pushliteral(L, "");
  }
  lua_pushlstring(L, message.data(), message.size());
  lua_pushcclosure(L, fail_assignment, 2);
  lua_setfield(L, -2, "__newindex");
  lua_setmetatable(L, -2);
  return 1;
}

/// Arguments: what is about to be assigned to, position, and where it is used in place its name; true as a fourth for a
/// `function a.b.c()`, which Lua places on its first line.
int write(lua_State* L) {
  if (lua_type(L, 1) == LUA_TTABLE) {
    note_table_write(L, 1);
  } else if (!lua_isnoneornil(L, 3) && luaL_getmetafield(L, 1, "__newindex") == LUA_TNIL) {
    return push_unassignable(L);
  }
  lua_settop(L, 1);
  return 1;
}

const lua_CFunction kIntrinsics[] = {
#define TRIAGE_INTRINSIC(name, function) function,
#include "bindings/lua/rewriter/intrinsics.inc"
#undef TRIAGE_INTRINSIC
};

}  // namespace

int push_intrinsics(lua_State* L, int64_t first_function_id) {
  int count = 0;
  reserve(L, std::size(kIntrinsics), "intrinsics");
  for (const lua_CFunction intrinsic : kIntrinsics) {
    const bool makes_ids = intrinsic == function;
    if (makes_ids) lua_pushinteger(L, first_function_id);
    lua_pushcclosure(L, intrinsic, makes_ids ? 1 : 0);
    count++;
  }
  return count;
}

void push_where(lua_State* L, int level, lua_Integer position, bool with_column) {
  lua_Debug frame;
  if (!lua_getstack(L, level, &frame) || !lua_getinfo(L, "Sl", &frame) || frame.currentline < 0) {
    lua_pushliteral(L, "");
    return;
  }
  const int line = frame.currentline + static_cast<int>(position / kColumns);
  if (with_column)
    lua_pushfstring(L, "%s:%d:%d: ", frame.short_src, line, static_cast<int>(position % kColumns));
  else
    lua_pushfstring(L, "%s:%d: ", frame.short_src, line);
}

bool is_intrinsic(lua_State* L, lua_Debug* frame) {
  lua_getinfo(L, "f", frame);
  const lua_CFunction running = lua_tocfunction(L, -1);
  lua_pop(L, 1);
  for (const lua_CFunction intrinsic : kIntrinsics)
    if (running == intrinsic) return true;
  return false;
}

void test_top(lua_State* L, int level) {
  if (!is_tensor(L, -1)) return;
  push_where(L, level, 0, false);
  push_truth(L, lua_gettop(L) - 1, lua_tostring(L, -1));
  lua_replace(L, -3);
  lua_pop(L, 1);
}

}  // namespace triage::lua
