#include "bindings/lua/sandbox/side_effects.h"

#include "bindings/lua/capture/breaks.h"
#include "bindings/lua/capture/open_chains.h"
#include "bindings/lua/capture/protected_calls.h"
#include "bindings/lua/sandbox/library.h"
#include "bindings/lua/semantics/chunk.h"
#include "bindings/lua/semantics/created.h"
#include "bindings/lua/semantics/intrinsics.h"
#include "bindings/lua/semantics/tensor_semantics.h"
#include "bindings/lua/semantics/wrapping.h"
#include "bindings/lua/state/effects.h"
#include "bindings/lua/state/scopes.h"
#include "bindings/lua/state/state.h"

#include "runtime/capture/recording/branch_guard.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/replay/trace_replayer.h"
#include "runtime/messages/printable.h"
#include "runtime/random/sequence.h"

#include <triage/error.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace triage::lua {
namespace {

int print(lua_State* L) {
  std::string line;
  const int count = lua_gettop(L);
  for (int i = 1; i <= count; ++i) {
    if (context(L).sandboxed)
      push_text_without_address(L, i);
    else
      luaL_tolstring(L, i, nullptr);
    size_t size = 0;
    const char* text = lua_tolstring(L, -1, &size);
    charge_text(L, line.size() + size, size);
    if (i > 1) line += '\t';
    line.append(text, size);
    lua_pop(L, 1);
  }
  break_graph(L, capture::Break::output, "`print` writes output",
              "Print before or after the compiled code, for example the tensors that it returns.");
  if (context(L).sandboxed) line = messages::printable(line);
  if (!may_show(context(L), line.size() + 1))
    throw LimitError("the script used up its budget of printed text (" + std::to_string(most_shown) +
                     " bytes in a load or call); print less");
  if (context(L).print) {
    context(L).print(line);
  } else {
    line += '\n';
    std::fwrite(line.data(), 1, line.size(), stdout);
    std::fflush(stdout);
  }
  return 0;
}

int io_write(lua_State* L) {
  break_graph(L, capture::Break::output, "`io.write` writes output",
              "Write before or after the compiled code, for example the tensors that it returns.");
  return run_original(L);
}

/// Whatever else reaches outside: what it reads is another thing the next time, what it does is to be done every time.
void break_for_outside(lua_State* L) {
  lua_Debug frame;
  lua_getstack(L, 0, &frame);
  lua_getinfo(L, "n", &frame);
  const std::string name = frame.name ? "`" + std::string(frame.name) + "`" : "a function";
  break_graph(L, capture::Break::output, name + " of the Lua library reads or changes state outside of the graph",
              "Call it before or after the compiled code.");
}

int reach_outside(lua_State* L) {
  break_for_outside(L);
  return run_original(L);
}

int time_of_fields(lua_State* L) {
  break_for_outside(L);
  for (const char* const name : {"year", "month", "day", "hour", "min", "sec", "isdst"}) {
    if (!lua_istable(L, 1)) break;
    lua_pushstring(L, name);
    lua_pushvalue(L, -1);
    lua_rawget(L, 1);
    specialize(L, -1);
    lua_isnil(L, -1) ? lua_pop(L, 2) : lua_rawset(L, 1);
  }
  return run_original(L);
}

/// What is changed there does not come back.
int change_outside(lua_State* L) {
  refuse_in_selection(L, "a change to files or to the process");
  return reach_outside(L);
}

int open_file(lua_State* L) {
  const char* const mode = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "r";
  if (std::strpbrk(mode, "wa+")) refuse_in_selection(L, "`io.open` of a file for writing");
  return reach_outside(L);
}

int choose_output(lua_State* L) {
  if (!lua_isnoneornil(L, 1)) refuse_in_selection(L, "`io.output` of another file");
  return reach_outside(L);
}

/// The first result is a function, or a coroutine, that goes on where it was whenever it is called.
int make_stateful(lua_State* L) {
  break_for_outside(L);
  const int results = run_original(L);
  mark_stateful(L, lua_gettop(L) - results + 1);
  return results;
}

/// Behind the yield anything may run, and none of it belongs to the branch.
int yield(lua_State* L) {
  if (capture::BranchGuard::selection().thread == L)
    throw PolicyError(
        "coroutine.yield is not allowed in a branch of an `if` whose condition is a mask: that branch runs for every "
        "sample, and must run to its end. Yield after the `if`.");
  break_for_outside(L);
  return hand_on(L);
}

bool has_failed(lua_State* coroutine) {
  const int status = lua_status(coroutine);
  return status != LUA_OK && status != LUA_YIELD;
}

/// The function that this frame wraps goes on with the coroutine at `index`, and leaves it there.
int run_coroutine(lua_State* L, int index) {
  if (auto* replayer = capture::TraceReplayer::current()) {
    replayer->note_escape();  // its locals may outlive the call
    replayer->end_segment();
  }
  const capture::KeepBranches branches;  // an error in a coroutine leaves open what it was in
  const CoroutineScope scope(L, index);
  ScopesOfCoroutine scopes(L);
  const CaughtErrors caught(L);
  const int results = hand_on(L);
  if (lua_State* const coroutine = lua_tothread(L, index); coroutine && has_failed(coroutine)) {
    scopes.give_up();
    caught.note();
  }
  go_on_unwinding(L);
  scope.suspend(index);
  return results;
}

/// coroutine.resume, coroutine.close
int run_given_coroutine(lua_State* L) {
  note_state_use(L, 1);
  break_for_outside(L);
  return run_coroutine(L, 1);
}

/// What coroutine.wrap gave; its first upvalue is the coroutine.
int resume_wrapped(lua_State* L) {
  lua_Debug frame;
  lua_getstack(L, 0, &frame);
  lua_getinfo(L, "f", &frame);
  note_state_use(L, lua_gettop(L));
  lua_pop(L, 1);
  return run_coroutine(L, lua_upvalueindex(1));
}

int wrap_coroutine(lua_State* L) {
  break_for_outside(L);
  const int results = run_original(L);
  wrap_function(L, guarded<resume_wrapped>);
  mark_created(L, -1);
  return results;
}

/// A random integer of 0 to `most`, each as likely as the others.
uint64_t draw_up_to(uint64_t most) {
  uint64_t mask = most;
  for (const int shift : {1, 2, 4, 8, 16, 32}) mask |= mask >> shift;
  for (;;)
    if (const uint64_t drawn = random::draw_bits() & mask; drawn <= most) return drawn;
}

/// What Lua's `math.random` gives, drawn from where the tensors of a policy draw. (Lua seeds its own generator by
/// addresses and the clock, which no host can repeat.)
int draw_number(lua_State* L) {
  lua_Integer low = 1, high = 0;
  switch (lua_gettop(L)) {
    case 0:
      lua_pushnumber(L, static_cast<lua_Number>(random::draw_bits() >> 11) * 0x1p-53);
      return 1;
    case 1:
      high = luaL_checkinteger(L, 1);
      if (high == 0) {
        lua_pushinteger(L, static_cast<lua_Integer>(random::draw_bits()));
        return 1;
      }
      break;
    case 2:
      low = luaL_checkinteger(L, 1);
      high = luaL_checkinteger(L, 2);
      break;
    default:
      return luaL_error(L, "wrong number of arguments");
  }
  luaL_argcheck(L, low <= high, lua_gettop(L), "interval is empty");
  const uint64_t drawn = draw_up_to(static_cast<uint64_t>(high) - static_cast<uint64_t>(low));
  lua_pushinteger(L, static_cast<lua_Integer>(drawn + static_cast<uint64_t>(low)));
  return 1;
}

int math_random(lua_State* L) {
  break_graph(L, capture::Break::output, "`math.random` draws a number, which would be a constant of the graph",
              "Draw a tensor, with torch.rand, torch.randn or torch.randint.");
  if (!context(L).sandboxed) return run_original(L);
  for (int i = lua_gettop(L); i > 0; i--) specialize(L, i);
  return draw_number(L);
}

int math_randomseed(lua_State* L) {
  refuse_in_selection(L, "`math.randomseed`");
  break_graph(L, capture::Break::seed, "`math.randomseed` sets the seed of the script",
              "Set it before the compiled code.");
  return run_original(L);
}

void wrap(lua_State* L, const char* library, const char* name, lua_CFunction function) {
  if (lua_getglobal(L, library) == LUA_TTABLE) wrap_library_function(L, name, function);
  lua_pop(L, 1);
}

/// Wraps every function in the table on top of the stack.
void wrap_all(lua_State* L, lua_CFunction function) {
  std::vector<std::string> names;
  for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1))
    if (lua_type(L, -2) == LUA_TSTRING && lua_iscfunction(L, -1)) names.emplace_back(lua_tostring(L, -2));
  for (const std::string& name : names) wrap_library_function(L, name.c_str(), function);
}

void wrap_outside(lua_State* L) {
  const int top = lua_gettop(L);
  for (const char* library : {"io", "os", "coroutine"}) {
    if (lua_getglobal(L, library) == LUA_TTABLE) wrap_all(L, guarded<reach_outside>);
    lua_pop(L, 1);
  }
  if (luaL_getmetatable(L, LUA_FILEHANDLE) == LUA_TTABLE && lua_getfield(L, -1, "__index") == LUA_TTABLE)
    wrap_all(L, guarded<reach_outside>);
  lua_settop(L, top);
  lua_pushglobaltable(L);
  wrap_library_function(L, "collectgarbage", guarded<reach_outside>);
  lua_pop(L, 1);
  wrap_protected_calls(L);
}

}  // namespace

void open_side_effects(lua_State* L) {
  wrap(L, "io", "write", guarded<io_write>);  // before all the others: what is wrapped is not wrapped again
  wrap(L, "math", "random", guarded<math_random>);
  wrap(L, "math", "randomseed", guarded<math_randomseed>);
  for (const char* const name : {"remove", "rename", "execute", "exit", "setlocale", "tmpname"})
    wrap(L, "os", name, guarded<change_outside>);
  for (const char* const name : {"popen", "tmpfile"}) wrap(L, "io", name, guarded<change_outside>);
  wrap(L, "io", "open", guarded<open_file>);
  wrap(L, "io", "output", guarded<choose_output>);
  wrap(L, "os", "time", guarded<time_of_fields>);
  wrap(L, "coroutine", "create", guarded<make_stateful>);
  wrap(L, "coroutine", "wrap", guarded<wrap_coroutine>);
  wrap(L, "coroutine", "close", guarded<run_given_coroutine>);
  wrap(L, "io", "lines", guarded<make_stateful>);
  wrap(L, "coroutine", "yield", guarded<yield>);
  wrap(L, "coroutine", "resume", guarded<run_given_coroutine>);
  wrap_outside(L);
  lua_pushcfunction(L, guarded<print>);
  lua_setglobal(L, "print");
}

}  // namespace triage::lua
