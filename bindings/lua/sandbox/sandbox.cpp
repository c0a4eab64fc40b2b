#include "bindings/lua/sandbox/sandbox.h"

#include "bindings/lua/capture/open_chains.h"
#include "bindings/lua/flags/flags_library.h"
#include "bindings/lua/flags/prelude.h"
#include "bindings/lua/nn/nn.h"
#include "bindings/lua/numbers/arithmetic.h"
#include "bindings/lua/sandbox/environment.h"
#include "bindings/lua/sandbox/library.h"
#include "bindings/lua/sandbox/side_effects.h"
#include "bindings/lua/semantics/base_library.h"
#include "bindings/lua/tensors/torch.h"
#include "bindings/lua/tensors/types/tensor_type.h"
#include "bindings/lua/typing/typing.h"
#include "bindings/lua/values/read_only.h"
#include "runtime/backends/deadline.h"
#include "runtime/capture/c_locale.h"
#include "runtime/capture/thread_stack.h"
#include "runtime/location/owner.h"
#include "runtime/messages/gone.h"
#include "runtime/messages/logs/log.h"
#include "runtime/messages/printable.h"
#include "runtime/policy/loading.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <utility>

/// Contract: the Context is made before the lua_State and outlives it. Nothing here runs Lua code outside of lua_pcall,
/// except the hook, which runs inside of whatever the script was doing.
namespace triage::lua {
namespace {

// Instructions between two looks at the budgets. One instruction may compare two strings of a megabyte, or copy
// thousands of values; that hooks are there at all costs far more than that they run often.
constexpr int hook_interval = 100;

void* allocate(void* user, void* block, size_t old_size, size_t new_size) {
  auto& context = *static_cast<Context*>(user);
  if (!block) old_size = 0;  // Lua passes the kind of object there
  if (new_size == 0) {
    std::free(block);
    context.script_bytes -= old_size;
    return nullptr;
  }
  void* grown = std::realloc(block, new_size);
  if (grown) context.script_bytes += new_size - old_size;
  return grown;
}

/// One look at the budgets. A budget that ran out stays so: from then on every instruction raises.
int look_at_budgets(lua_State* L) {
  Context& own = context(L);
  try {
    if (own.expired) throw LimitError("the script used up its budget and was stopped");
    charge(L, 0, 0, hook_interval);
    return 0;
  } catch (const LimitError& error) {
    own.expired = true;
    ++own.stopped;
    raise_error(L, error);
  }
  return -1;
}

void hook(lua_State* L, lua_Debug* event) {
  if (event->event == LUA_HOOKLINE) {
    if (const auto& on_line = context(L).on_line) on_line(L, event);
    return;
  }
  if (look_at_budgets(L) == 0) return;
  lua_sethook(L, hook, LUA_MASKCOUNT, 1);
  lua_error(L);
}

int panic(lua_State* L) {
  std::fprintf(stderr, "triage: error outside of a protected call: %s\n",
               messages::one_line(error_text(L, -1)).c_str());
  return 0;  // Lua aborts
}

/// Libraries that a policy gets; what of them it may use is a matter of its environment.
void open_lua_libraries(lua_State* L, bool sandboxed) {
  if (!sandboxed) {
    luaL_openlibs(L);
    return;
  }
  static const luaL_Reg libraries[] = {{LUA_GNAME, luaopen_base},
                                       {LUA_TABLIBNAME, luaopen_table},
                                       {LUA_STRLIBNAME, luaopen_string},
                                       {LUA_MATHLIBNAME, luaopen_math},
                                       {LUA_UTF8LIBNAME, luaopen_utf8}};
  for (const auto& library : libraries) {
    luaL_requiref(L, library.name, library.func, 1);
    lua_pop(L, 1);
  }
}

void define_arguments(lua_State* L, const StateOptions& options) {
  lua_newtable(L);
  lua_pushlstring(L, options.path.data(), options.path.size());
  lua_rawseti(L, -2, 0);
  for (size_t i = 0; i < options.args.size(); ++i) {
    lua_pushlstring(L, options.args[i].data(), options.args[i].size());
    lua_rawseti(L, -2, static_cast<lua_Integer>(i + 1));
  }
  lua_setglobal(L, "arg");
}

/// What is thrown through Lua has to be an error: it would take anything else for one of its own.
std::function<void(const std::string&)> throws_errors(std::function<void(const std::string&)> print) {
  if (!print) return print;
  return [print = std::move(print)](const std::string& text) {
    const capture::HostLocale numbers_of_host;
    const policy::Loading::Cancellable no_reload(nullptr);
    try {
      print(text);
    } catch (const std::exception&) {
      throw;
    } catch (...) {
      throw PolicyError("`print` of the host threw something that is not a std::exception");
    }
  };
}

}  // namespace

// A tensor is a few bytes to Lua's collector, and much more to the machine. With Lua's own settings (200, 100) garbage
// tensors pile up faster than they are freed: a loop of a million small calls then takes 4 times as long.
constexpr int collector_pause = 120;  // percent of the memory in use after a cycle, at which the next one begins
constexpr int collector_speed = 400;  // percent

namespace {

void warn_of_gone_variables() {
  static std::atomic<bool> told{false};
  if (told.exchange(true)) return;
  if (const std::string text = messages::text_of_gone_variables(); !text.empty()) messages::warn(text);
}

}  // namespace

ScriptState::ScriptState(StateOptions options) : options_(std::move(options)) {
  const capture::CLocale numbers;
  context_.limits = options_.limits;
  context_.sandboxed = options_.sandboxed;
  context_.calls_everything = !options_.sandboxed || options_.trusted;
  context_.print = throws_errors(options_.print);
  context_.chunk = options_.path;
  if (options_.sandboxed) context_.locations = std::make_shared<LocationOwner>(options_.path);
  warn_of_gone_variables();
  lua_ = lua_newstate(allocate, &context_);
  if (!lua_) throw LoadError("cannot make a Lua state: out of memory");
  attach(lua_, context_);
  lua_gc(lua_, LUA_GCINC, collector_pause, collector_speed, 0);
  lua_atpanic(lua_, panic);
  disarm();
  lua_pushcfunction(lua_, guarded<assemble>);
  lua_pushlightuserdata(lua_, this);
  if (lua_pcall(lua_, 1, 0, 0) != LUA_OK) {
    const std::string message = error_text(lua_, -1);
    lua_close(lua_);
    throw LoadError("cannot set up the Lua library: " + message);
  }
}

ScriptState::~ScriptState() {
  if (context_.sandboxed) {  // what a script left to be run at the end is stopped at once
    context_.expired = true;
    lua_sethook(lua_, hook, LUA_MASKCOUNT, 1);
  }
  lua_close(lua_);
}

int ScriptState::assemble(lua_State* L) {
  auto& state = *static_cast<ScriptState*>(lua_touserdata(L, 1));
  lua_settop(L, 0);
  const bool sandboxed = state.context_.sandboxed;
  open_lua_libraries(L, sandboxed);
  if (sandboxed) {
    budget_base(L);
    budget_strings(L);
    budget_tables(L);
  }
  open_side_effects(L);
  open_tensor(L);
  open_guarded(L);
  open_numbers(L);
  open_torch(L);
  open_flags(L);
  open_typing(L);
  open_nn(L);
  open_prelude(L);
  open_base_library(L);  // wraps what stands there now
  if (sandboxed) {
    budget_loading(L);
    push_policy_environment(L);
  } else {
    define_arguments(L, state.options_);
    lua_pushglobaltable(L);
  }
  set_load_environment(L);
  state.environment_ = luaL_ref(L, LUA_REGISTRYINDEX);
  return 0;
}

std::optional<Deadline::Moment> ScriptState::arm(std::optional<Deadline::Moment> deadline) {
  capture::require_stack();
  const Limits& limits = context_.limits;
  drop_held_memory(context_, /*all=*/true);  // what is still held belongs to the host
  context_.expired = false;
  context_.stopped = 0;
  context_.printed_bytes = 0;
  context_.instructions_left = limits.instructions ? limits.instructions : std::numeric_limits<uint64_t>::max();
  context_.deadline = deadline;
  if (const auto end = Deadline::in(limits.seconds)) context_.deadline = deadline ? std::min(*deadline, *end) : end;
  const bool limited = limits.instructions || limits.script_bytes || limits.tensor_bytes || context_.deadline ||
                       policy::Loading::is_cancellable();
  const int mask = (limited ? LUA_MASKCOUNT : 0) | (context_.on_line ? LUA_MASKLINE : 0);
  lua_sethook(lua_, mask ? hook : nullptr, mask, hook_interval);
  forget_chains(lua_);  // those that a failed call left behind
  return context_.deadline;
}

void ScriptState::disarm() noexcept {
  lua_sethook(lua_, nullptr, 0, 0);
  context_.expired = false;
  context_.deadline.reset();
  context_.instructions_left = std::numeric_limits<uint64_t>::max();
}

void ScriptState::push_environment() { lua_rawgeti(lua_, LUA_REGISTRYINDEX, environment_); }

void ScriptState::define(const char* name) {
  if (context_.sandboxed && lua_istable(lua_, -1)) {
    push_read_only(lua_, -1, name);
    lua_remove(lua_, -2);
  }
  push_environment();
  lua_insert(lua_, -2);
  lua_setfield(lua_, -2, name);
  lua_pop(lua_, 1);
}

}  // namespace triage::lua
