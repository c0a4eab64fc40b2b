#include "bindings/lua/capture/breaks.h"

#include "bindings/lua/capture/user_code.h"
#include "bindings/lua/semantics/allowed_writes.h"
#include "bindings/lua/state/effects.h"
#include "bindings/lua/state/scopes.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/state/userdata.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/number.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/replay/trace_replayer.h"
#include "runtime/capture/sizes/marks.h"

#include <string>

namespace triage::lua {
namespace {

using capture::Break;
using capture::OnGraphBreak;

// A registry table with weak keys: coroutine -> what its scopes say (the lowest bits) and how many it has open.
const char kScopes = 0;  // its address is the registry key
constexpr int kBitsOfThen = 2;

OnGraphBreak::Then then_of(lua_State* L, int index) {
  specialize_number(L, index);
  luaL_checktype(L, index, LUA_TBOOLEAN);
  return lua_toboolean(L, index) ? OnGraphBreak::Then::raise : OnGraphBreak::Then::go_on;
}

/// core.error_on_graph_break(flag) -> a scope of the setting
int error_on_graph_break(lua_State* L) {
  const OnGraphBreak::Then then = then_of(L, 1);
  push_scope(L) = [before = OnGraphBreak::current(), &own = context(L)] {
    OnGraphBreak::set(before);
    --own.break_scopes;
  };
  OnGraphBreak::set(then);
  ++context(L).break_scopes;
  return 1;
}

/// core.with_error_on_graph_break(flag, fn, ...) -> what fn returns
int with_error_on_graph_break(lua_State* L) {
  error_on_graph_break(L);
  return call_in_scope(L, kFunction);
}

/// core.run_disabled(recursive, reason or nil, fn, ...) -> what fn returns, run as a script
int run_disabled(lua_State* L) {
  const std::string reason = lua_isnil(L, 2) ? "" : std::string(": ") + luaL_checkstring(L, 2);
  lua_remove(L, 2);
  const Source place = definition_of(L, 2).where;
  const std::string which = place.file.empty() ? function_name(L, 2) : "the function at " + function_name(L, 2);
  capture::graph_break(Break::disabled, "`triage.disable` keeps " + which + " out of graphs" + reason,
                       "Call it before or after the compiled code to get one graph.");
  const capture::NotCaptured scope(lua_toboolean(L, 1));  // no scope of Lua's: the capture may be gone before that ends
  call_for_all(L, lua_gettop(L) - kFunction);
  return lua_gettop(L) - kFunction + 1;
}

/// core.run_allowed(nil, fn, ...) -> what fn returns; its side effects are no graph breaks
int run_allowed(lua_State* L) {
  note_allowed_function(L, 2);
  push_scope_of<capture::EffectsAllowed>(L);
  return call_in_scope(L, kFunction);
}

/// triage.graph_break([message])
int graph_break(lua_State* L) {
  const char* const message = text_argument(L, {1, "triage.graph_break", "message"}, "`triage.graph_break` was called");
  capture::graph_break(Break::requested, message, "Remove the call of triage.graph_break to get one graph.");
  return 0;
}

/// core.is_compiling() -> whether what runs now is captured, in one graph or in several
int is_compiling(lua_State* L) {
  lua_pushboolean(L,
                  capture::Recorder::current() || capture::TraceReplayer::current() || capture::NotFollowed::current());
  return 1;
}

/// core.mark_size(x, dim, dynamic, min, max)
int mark_size(lua_State* L) {
  const at::Tensor& tensor = check_tensor(L, 1);
  const char* const who = lua_toboolean(L, 3) ? "triage.mark_dynamic" : "triage.mark_static";
  int64_t dim = integer_argument(L, {2, who, "dim"});
  if (dim < -tensor.dim() || dim >= tensor.dim())
    throw InputError(std::string(who) + ": there is no dimension " + std::to_string(dim) + " in a tensor of rank " +
                     std::to_string(tensor.dim()));
  capture::DimensionMark mark{dim < 0 ? dim + tensor.dim() : dim, lua_toboolean(L, 3) != 0};
  mark.min = integer_argument(L, {4, who, "min"}, mark.min);
  mark.max = integer_argument(L, {5, who, "max"}, mark.max);
  if (mark.dynamic && (tensor.size(mark.dim) < mark.min || tensor.size(mark.dim) > mark.max))
    throw InputError("triage.mark_dynamic: dimension " + std::to_string(mark.dim) + ": the size is " +
                     std::to_string(tensor.size(mark.dim)) + ", expected " + std::to_string(mark.min) +
                     (mark.max == capture::DimensionMark{}.max ? " or more" : " to " + std::to_string(mark.max)));
  refuse_in_selection(L, "`" + std::string(who) + "`");
  capture::graph_break(Break::registry, "a tensor is marked dynamic or static", "Mark it before the compiled code.");
  capture::set_mark(tensor, mark);
  return 0;
}

/// core.change_registry(what, hint): before something is changed that all code finds.
int change_registry(lua_State* L) {
  const std::string what = luaL_checkstring(L, 1);
  refuse_in_selection(L, what);
  capture::graph_break(Break::registry, what + " changes a registry that captured code reads", luaL_checkstring(L, 2));
  bump_epoch(L);
  return 0;
}

int is_sandboxed(lua_State* L) {
  lua_pushboolean(L, context(L).sandboxed);
  return 1;
}

}  // namespace

void add_break_control(lua_State* L) {
  static const luaL_Reg functions[] = {{"with_error_on_graph_break", guarded<with_error_on_graph_break>},
                                       {"error_on_graph_break", guarded<error_on_graph_break>},
                                       {"run_disabled", guarded<run_disabled>},
                                       {"run_allowed", guarded<run_allowed>},
                                       {"mark_size", guarded<mark_size>},
                                       {"change_registry", guarded<change_registry>},
                                       {"is_sandboxed", guarded<is_sandboxed>},
                                       {nullptr, nullptr}};
  luaL_setfuncs(L, functions, 0);
  static const LimitedFunction of_triage[] = {{"graph_break", guarded<graph_break>, 1},
                                              {"is_compiling", guarded<is_compiling>, 0}};
  set_limited(L, "triage.", of_triage);
}

CoroutineScope::CoroutineScope(lua_State* L, int index)
    : L_(L), before_(OnGraphBreak::current()), open_before_(context(L).break_scopes) {
  push_weak_table(L, &kScopes);
  lua_pushvalue(L, index);
  const bool known = lua_isthread(L, -1) && lua_rawget(L, -2) == LUA_TNUMBER;
  const lua_Integer scopes = known ? lua_tointeger(L, -1) : 0;
  lua_pop(L, 2);
  int& open = context(L).break_scopes;
  open = static_cast<int>(scopes >> kBitsOfThen);
  if (open > 0) OnGraphBreak::set(static_cast<OnGraphBreak::Then>(scopes & ((1 << kBitsOfThen) - 1)));
}

CoroutineScope::~CoroutineScope() {
  OnGraphBreak::set(before_);
  context(L_).break_scopes = open_before_;
}

void CoroutineScope::suspend(int index) const {
  reserve(L_, 0, "coroutines");
  lua_pushvalue(L_, index);
  if (lua_isthread(L_, -1)) {
    push_weak_table(L_, &kScopes);
    lua_insert(L_, -2);
    const int open = context(L_).break_scopes;
    const lua_Integer scopes =
        (static_cast<lua_Integer>(open) << kBitsOfThen) | static_cast<lua_Integer>(OnGraphBreak::current());
    open > 0 ? lua_pushinteger(L_, scopes) : lua_pushnil(L_);
    lua_rawset(L_, -3);
  }
  lua_pop(L_, 1);
}

}  // namespace triage::lua
