#include "bindings/lua/compile/escape_hatches.h"

#include "bindings/lua/capture/user_code.h"
#include "bindings/lua/compile/value_checks.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/charge_copy.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/graph_break.h"
#include "runtime/capture/recording/branch_guard.h"
#include "runtime/capture/recording/recorder.h"

#include <ATen/core/Tensor.h>

#include <string>

namespace triage::lua {
namespace {

using capture::Recorder;

std::string shown(lua_State* L, int index) {
  if (test_tensor(L, index)) return describe(L, index);
  size_t length = 0;
  const char* text = luaL_tolstring(L, index, &length);
  std::string result(text, length);
  lua_pop(L, 1);
  return result.size() > 60 ? result.substr(0, 60) + "..." : result;
}

/// A result that was taken for constant: a tensor as one that nobody else writes to, any other value as it is.
void bake_in(lua_State* L, int index, Recorder& recorder) {
  if (const at::Tensor* tensor = test_tensor(L, index)) {
    charge_copy(L, *tensor);
    const at::Tensor own = tensor->detach().clone();
    recorder.tensors().add_literal(own);
    push_tensor(L, own);
    lua_replace(L, index);
    return;
  }
  switch (lua_type(L, index)) {
    case LUA_TNIL:
    case LUA_TBOOLEAN:
    case LUA_TNUMBER:
    case LUA_TSTRING:
      return;
    default:
      throw InputError("assume_constant_result: the function returned " + describe(L, index) +
                       "; expected tensors, numbers, strings, booleans or nil");
  }
}

/// Runs upvalue 1 on real values; upvalue 2 names it.
int constant_call(lua_State* L) {
  const int count = lua_gettop(L);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  Recorder* recorder = Recorder::current();
  if (!recorder) {
    call_for_all(L, count);
    return lua_gettop(L);
  }
  {
    capture::OutsideBranches::forbid_restart();  // the function may do what is not to be done twice
    const capture::NotCaptured pause(false);
    call_for_all(L, count);
  }
  std::string values;
  for (int i = 1; i <= lua_gettop(L); ++i) {
    bake_in(L, i, *recorder);
    values += (values.empty() ? "" : ", ") + shown(L, i);
  }
  const Source where = current_line(L);
  recorder->note(std::string(lua_tostring(L, lua_upvalueindex(2))) +
                 " was called during capture, and its result is a constant of the graph: " +
                 (values.empty() ? "nothing" : values) + "  (assume_constant_result, " + where.file + ":" +
                 std::to_string(where.line) + ")");
  return lua_gettop(L);
}

/// triage.assume_constant_result(fn)
int assume_constant_result(lua_State* L) {
  if (!lua_isfunction(L, 1)) wrong_argument(L, {1, "triage.assume_constant_result", "fn"}, "a function");
  lua_settop(L, 1);
  lua_Debug info;
  lua_pushvalue(L, 1);
  lua_getinfo(L, ">S", &info);
  lua_pushfstring(L, "the function of line %d", info.linedefined);
  lua_pushvalue(L, 1);
  lua_insert(L, -2);
  lua_pushcclosure(L, guarded<constant_call>, 2);
  set_wrapped(L, -1, 1);
  set_made(L, -1, "triage.assume_constant_result", 1, 1);
  return 1;
}

}  // namespace

bool is_assumed_constant(lua_State* L, int index) { return lua_tocfunction(L, index) == &guarded<constant_call>; }

void add_escape_hatches(lua_State* L) {
  static const LimitedFunction functions[] = {{"assume_constant_result", guarded<assume_constant_result>, 1}};
  set_limited(L, "triage.", functions);
  add_checks(L);
}

}  // namespace triage::lua
