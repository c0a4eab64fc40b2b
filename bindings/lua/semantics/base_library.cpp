#include "bindings/lua/semantics/base_library.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/lua/numbers/math_library.h"
#include "bindings/lua/semantics/created.h"
#include "bindings/lua/semantics/intrinsics.h"
#include "bindings/lua/semantics/libraries.h"
#include "bindings/lua/semantics/loading.h"
#include "bindings/lua/semantics/tensor_semantics.h"
#include "bindings/lua/semantics/wrapping.h"
#include "bindings/lua/state/effects.h"

namespace triage::lua {
namespace {

const char kNext = 0;  // its address is the registry key

void note_write_to_argument(lua_State* L, int index) {
  if (lua_type(L, index) == LUA_TTABLE) note_table_write(L, index);
}

// --- basic functions

/// An error that a script raises itself where each sample takes its own branch: it is raised whether any takes that or
/// not.
void explain_error_in_branch(lua_State* L, int index) {
  if (lua_type(L, index) != LUA_TSTRING || !branch_per_sample()) return;
  lua_pushvalue(L, index);
  lua_pushliteral(L,
                  " (raised in a branch of an `if` whose condition is a mask: that branch runs for every sample. Hint: "
                  "record the error for the samples of the mask, with push(f, code, location, {where = mask}); or "
                  "decide for the whole batch, with mask:any() as the condition)");
  lua_concat(L, 2);
  lua_replace(L, index);
}

int base_assert(lua_State* L) {
  if (is_tensor(L, 1)) {
    push_where(L, 1, 0, false);
    push_truth(L, 1, lua_tostring(L, -1));
    if (!lua_toboolean(L, -1)) lua_copy(L, -1, 1);
    lua_pop(L, 2);
  }
  if (!lua_toboolean(L, 1) && lua_gettop(L) >= 2) explain_error_in_branch(L, 2);
  return hand_on(L);
}

/// Levels count the functions of the script: the intrinsics between them are none of its business.
int base_error(lua_State* L) {
  explain_error_in_branch(L, 1);
  specialize(L, 2);
  if (lua_type(L, 2) != LUA_TNUMBER || lua_tointeger(L, 2) < 2) return hand_on(L);
  constexpr lua_Integer most = 200;  // to find a level Lua walks over all above it
  lua_Integer wanted = std::min(lua_tointeger(L, 2), most);
  lua_Debug frame;
  for (int level = 1; level <= wanted && lua_getstack(L, level, &frame); level++)
    if (is_intrinsic(L, &frame)) wanted++;
  lua_pushinteger(L, wanted);
  lua_replace(L, 2);
  return hand_on(L);
}

/// What these change, guards come across in no table: they are evaluated again, whatever they find.
int debug_write(lua_State* L) {
  refuse_in_selection(L, "a change by `debug`");
  bump_epoch(L);
  note_hidden_write(L);
  if (current_capture())
    break_graph(L, capture::Break::outside_write, "`debug` changes functions or values",
                "Do it before the compiled code runs.");
  return run_original(L);
}

/// `pairs` gives the `next` that scripts know; Lua's own hands out its own.
int base_pairs(lua_State* L) {
  if (lua_isnone(L, 1)) return hand_on(L);
  lua_settop(L, 1);
  if (luaL_getmetafield(L, 1, "__pairs") != LUA_TNIL) {
    lua_pop(L, 1);
    return hand_on(L);
  }
  lua_rawgetp(L, LUA_REGISTRYINDEX, &kNext);
  lua_insert(L, 1);
  lua_pushnil(L);
  return 3;
}

int base_ipairs(lua_State* L) { return is_tensor(L, 1) && !has_flags(L, 1) ? iterate_rows(L) : run_original(L); }

/// Some of the arguments are for the function itself; the others it hands on.
template <int first, int last>
int with_plain(lua_State* L) {
  for (int i = first; i <= last && i <= lua_gettop(L); i++) specialize(L, i);
  return hand_on(L);
}

int base_type(lua_State* L) {
  const char* const kind = symbolic_kind(L, 1);
  if (!kind) return run_original(L);
  lua_pushstring(L, std::string_view(kind) == "boolean" ? kind : "number");
  return 1;
}

int math_type(lua_State* L) {
  const char* const kind = symbolic_kind(L, 1);
  if (!kind || std::string_view(kind) == "boolean") return run_original(L);
  lua_pushstring(L, kind);
  return 1;
}

int base_tonumber(lua_State* L) {
  const char* const kind = symbolic_kind(L, 1);
  if (!kind || std::string_view(kind) == "boolean" || lua_gettop(L) > 1) return run_original(L);
  return 1;
}

/// The functions of Lua take numbers: tensors have methods of their own.
void refuse_tensors(lua_State* L, const std::string& name) {
  for (int i = 1; i <= lua_gettop(L); i++) {
    if (!is_tensor(L, i) || symbolic_kind(L, i)) continue;
    const std::string bound = name == "max" ? "x:clamp({min = a})" : "x:clamp({max = a})";
    push_where(L, 1, 0, false);
    lua_pushstring(
        L, ("math." + name + " takes numbers, and argument " + std::to_string(i) + " is a tensor; write " +
            (name == "max" || name == "min" ? bound + " with a number, torch." + name + "imum(x, y) with a tensor"
             : name == "fmod"               ? std::string("torch.fmod(x, y)")
             : name == "atan"               ? std::string("x:atan()")
                                            : "x:" + name + "()"))
               .c_str());
    lua_concat(L, 2);
    lua_error(L);
  }
}

template <size_t i>
int math_of_numbers(lua_State* L) {
  refuse_tensors(L, kMathOfNumbers[i]);
  return push_math(L, kMathOfNumbers[i]) ? 1 : run_original(L);
}

/// The library is on top of the stack.
template <size_t... i>
void wrap_math(lua_State* L, std::index_sequence<i...>) {
  (wrap_library_function(L, kMathOfNumbers[i], math_of_numbers<i>), ...);
}

/// For functions that write to the table that is their first argument.
int write_first(lua_State* L) {
  if (lua_gettop(L) > 2) {
    specialize(L, 2);
    check_key(L, 2);
  }
  note_write_to_argument(L, 1);
  return hand_on(L);
}

// --- table

/// Of the table at `table`, unless that is in the way of its metamethods.
void specialize_field(lua_State* L, int table, lua_Integer i) {
  if (lua_rawgeti(L, table, i) == LUA_TUSERDATA && symbolic_kind(L, -1)) {
    specialize(L, -1);
    lua_pushvalue(L, -1);
    lua_rawseti(L, table, i);
  }
  lua_pop(L, 1);
}

int table_remove(lua_State* L) {
  if (lua_gettop(L) > 1) specialize(L, 2);
  return write_first(L);
}

/// What stands in the table is text too: in its list, and where the arguments say from where to where.
int table_concat(lua_State* L) {
  for (int i = lua_gettop(L); i > 0; i--) specialize(L, i);
  const auto size = lua_type(L, 1) == LUA_TTABLE ? static_cast<lua_Integer>(lua_rawlen(L, 1)) : 0;
  const lua_Integer first = lua_isinteger(L, 3) ? lua_tointeger(L, 3) : 1;
  const lua_Integer last = lua_isinteger(L, 4) ? lua_tointeger(L, 4) : size;
  if (size > 0 && first <= last) {
    const auto count = static_cast<lua_Unsigned>(last) - static_cast<lua_Unsigned>(first);  // and one
    for (lua_Unsigned i = 0; i <= count && i <= static_cast<lua_Unsigned>(size); i++)
      specialize_field(L, 1, static_cast<lua_Integer>(static_cast<lua_Unsigned>(first) + i));
  }
  return hand_on(L);
}

int table_move(lua_State* L) {
  note_write_to_argument(L, lua_type(L, 5) == LUA_TTABLE ? 5 : 1);
  return run_original(L);
}

int table_pack(lua_State* L) {
  const int results = hand_on(L);
  mark_created(L, -1);
  return results;
}

/// A comparator's result is a condition.
int tested_comparator(lua_State* L) {
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, 1);
  constexpr int level_of_script = 2;  // above this function and `sort`
  test_top(L, level_of_script);
  return 1;
}

/// Does the list at `index` begin with what only a metamethod orders?
bool holds_objects(lua_State* L, int index) {
  if (lua_type(L, index) != LUA_TTABLE) return false;
  const int first = lua_rawgeti(L, index, 1);
  lua_pop(L, 1);
  return first == LUA_TTABLE || first == LUA_TUSERDATA;
}

int table_sort(lua_State* L) {
  note_write_to_argument(L, 1);
  if (lua_type(L, 2) == LUA_TFUNCTION) {
    lua_pushvalue(L, 2);
    lua_pushcclosure(L, tested_comparator, 1);
    lua_replace(L, 2);
  } else if (lua_isnoneornil(L, 2) && holds_objects(L, 1)) {
    lua_settop(L, 1);
    lua_pushcfunction(L, less_than);
  }
  return run_original(L);
}

// --- string

int string_gmatch(lua_State* L) {
  const int results = run_original(L);
  mark_stateful(L, -1);
  return results;
}

/// Upvalue: a function, or a table. What it gives for a match is text.
int specialized_replacement(lua_State* L) {
  lua_pushvalue(L, lua_upvalueindex(1));
  if (lua_istable(L, -1)) {
    lua_pushvalue(L, 1);
    lua_gettable(L, -2);
  } else {
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, 1);
  }
  specialize(L, -1);
  return 1;
}

int string_gsub(lua_State* L) {
  if (lua_istable(L, 3) || lua_isfunction(L, 3)) {
    lua_pushvalue(L, 3);
    lua_pushcclosure(L, specialized_replacement, 1);
    lua_replace(L, 3);
  }
  return run_original(L);
}

/// `%d`, `%f`, ... of a tensor show the number it holds; `%s` and `%q` are left to tostring.
int string_format(lua_State* L) {
  for (int i = lua_gettop(L); i > 0; i--) specialize(L, i);
  if (lua_type(L, 1) != LUA_TSTRING) return run_original(L);
  const std::string_view format(lua_tostring(L, 1), lua_rawlen(L, 1));
  int argument = 1;
  for (size_t at = format.find('%'); at != std::string_view::npos; at = format.find('%', at + 1)) {
    at = format.find_first_not_of("-+ #0123456789.", at + 1);
    if (at == std::string_view::npos) break;
    if (format[at] == '%') continue;
    argument++;
    const bool number = std::string_view("aAcdeEfFgGioxXu").find(format[at]) != std::string_view::npos;
    if (number && is_tensor(L, argument)) replace_by_item(L, argument);
    if (format[at] == 'p' && is_tensor(L, argument))
      break_graph(L, capture::Break::reads_value, "`%p` reads the address of a tensor",
                  "Print outside of the compiled code.");
  }
  return run_original(L);
}

struct Replacement {
  const char* library;
  const char* name;
  lua_CFunction function;
};
constexpr Replacement kReplacements[] = {
    {LUA_GNAME, "assert", base_assert},          {LUA_GNAME, "error", base_error},
    {LUA_GNAME, "ipairs", base_ipairs},          {LUA_GNAME, "rawset", write_first},
    {LUA_GNAME, "setmetatable", write_first},    {LUA_TABLIBNAME, "insert", write_first},
    {LUA_TABLIBNAME, "remove", table_remove},    {LUA_TABLIBNAME, "move", table_move},
    {LUA_TABLIBNAME, "pack", table_pack},        {LUA_TABLIBNAME, "sort", table_sort},
    {LUA_STRLIBNAME, "format", string_format},   {LUA_STRLIBNAME, "gmatch", string_gmatch},
    {LUA_STRLIBNAME, "gsub", string_gsub},       {LUA_GNAME, "pairs", base_pairs},
    {LUA_DBLIBNAME, "setlocal", debug_write},    {LUA_DBLIBNAME, "setmetatable", debug_write},
    {LUA_DBLIBNAME, "setupvalue", debug_write},  {LUA_DBLIBNAME, "setuservalue", debug_write},
    {LUA_DBLIBNAME, "upvaluejoin", debug_write}, {LUA_GNAME, "type", base_type},
    {LUA_MATHLIBNAME, "type", math_type},        {LUA_GNAME, "tonumber", base_tonumber},
    {LUA_GNAME, "getmetatable", run_original},   {LUA_GNAME, "next", run_original},
    {LUA_GNAME, "rawequal", with_plain<1, 2>},   {LUA_GNAME, "rawget", with_plain<2, 2>},
    {LUA_GNAME, "select", with_plain<1, 1>},     {LUA_TABLIBNAME, "concat", table_concat},
};

/// Every other function of these is given plain values (run_original); of the others that reach outside, and wait for
/// their own wrappers, too (sandbox/side_effects.h).
constexpr const char* kPlainLibraries[] = {LUA_MATHLIBNAME, LUA_STRLIBNAME, LUA_UTF8LIBNAME, LUA_TABLIBNAME,
                                           LUA_DBLIBNAME};

bool is_replaced(std::string_view library, std::string_view name) {
  for (const Replacement& replacement : kReplacements)
    if (library == replacement.library && name == replacement.name) return true;
  return false;
}

/// The library is on top of the stack.
void give_plain_values(lua_State* L, const char* library) {
  std::vector<std::string> names;
  for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1))
    if (lua_type(L, -2) == LUA_TSTRING && lua_iscfunction(L, -1) && !is_replaced(library, lua_tostring(L, -2)))
      names.emplace_back(lua_tostring(L, -2));
  for (const std::string& name : names) wrap_library_function(L, name.c_str(), run_original);
}

}  // namespace

void open_base_library(lua_State* L) {
  for (const Replacement& replacement : kReplacements) {
    lua_getglobal(L, replacement.library);
    if (lua_istable(L, -1)) wrap_library_function(L, replacement.name, replacement.function);
    lua_pop(L, 1);
  }
  lua_getglobal(L, "next");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &kNext);
  lua_getglobal(L, LUA_MATHLIBNAME);
  if (lua_istable(L, -1)) wrap_math(L, std::make_index_sequence<std::size(kMathOfNumbers)>());
  lua_pop(L, 1);
  for (const char* library : kPlainLibraries) {
    lua_getglobal(L, library);
    if (lua_istable(L, -1)) give_plain_values(L, library);
    lua_pop(L, 1);
  }
  open_loading(L);
}

}  // namespace triage::lua
