#include "bindings/lua/compile/compiled_function.h"

#include "bindings/lua/capture/user_code.h"
#include "bindings/lua/compile/closures/closure_environments.h"
#include "bindings/lua/compile/recorded_call.h"
#include "bindings/lua/compile/reports/compile_profiler.h"
#include "bindings/lua/flags/prelude.h"
#include "bindings/lua/semantics/allowed_writes.h"
#include "bindings/lua/state/effects.h"
#include "bindings/lua/state/scopes.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/guarded.h"
#include "runtime/capture/recording/branch_guard.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/replay/trace_replayer.h"
#include "runtime/capture/reports/compile_clock.h"
#include "runtime/messages/logs/artefacts.h"
#include "runtime/messages/logs/log.h"
#include "runtime/messages/logs/log_file.h"
#include "runtime/messages/printable.h"
#include "runtime/messages/profiling/profiler_spans.h"

#include <fmt/format.h>
#include <triage/compiler_config.h>
#include <triage/version.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <string_view>

namespace triage::lua {
namespace {

using capture::Compiled;
using capture::Recorder;

const char* const compiled_type = "triage.compiled";

CompiledFunction& check_compiled(lua_State* L, int index) {
  auto* holder = static_cast<CompiledFunction**>(luaL_checkudata(L, index, compiled_type));
  if (!*holder) luaL_error(L, "this compiled function was closed");
  return **holder;
}

/// Plain arguments are part of the graph (by value and subtype): they come as bytes, tensors as they are. Returns the
/// stack index of an argument that graphs cannot take; 0 where there is none. A tensor that is given twice is one
/// value.
int read_arguments(lua_State* L, int first, std::vector<at::Tensor>& tensors, std::string& plain) {
  c10::SmallVector<const void*, 8> userdata;
  for (int i = first; i <= lua_gettop(L); ++i) {
    if (const at::Tensor* tensor = test_tensor(L, i)) {
      if (tensors.size() == most_inputs)
        throw InputError(fmt::format(
            "a compiled function takes at most {} tensors; join them with torch.stack or torch.cat", most_inputs));
      tensors.push_back(*tensor);
      plain += 't';
      const void* const own = lua_touserdata(L, i);
      const auto same = std::find(userdata.begin(), userdata.end(), own);
      if (same != userdata.end()) plain += '=' + std::to_string(same - userdata.begin());
      userdata.push_back(own);
    } else if (lua_isinteger(L, i)) {
      plain += 'i' + std::to_string(lua_tointeger(L, i));
    } else if (lua_type(L, i) == LUA_TNUMBER) {
      double number = lua_tonumber(L, i);
      plain += 'd';
      plain.append(reinterpret_cast<const char*>(&number), sizeof(number));
    } else if (lua_type(L, i) == LUA_TSTRING) {
      size_t length = 0;
      const char* text = lua_tolstring(L, i, &length);
      plain += 's' + std::to_string(length) + ':';
      plain.append(text, length);
    } else if (lua_isnoneornil(L, i) || lua_isboolean(L, i)) {
      plain += lua_isnil(L, i) ? 'n' : lua_toboolean(L, i) ? 'T' : 'F';
    } else {
      return i;
    }
  }
  return 0;
}

/// With every line but the first behind a blank: messages quote names, errors and lines of scripts, none of which may
/// look like a message of its own.
std::string continued(std::string_view text) {
  std::string lines;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    const bool stands_out = begin > 0 && !line.empty() && line.front() != ' ';
    lines += fmt::format("{}{}{}", begin > 0 ? "\n" : "", stands_out ? "  " : "", line);
    begin = end + 1;
  }
  return lines;
}

/// What there is to say besides the script's own words: where those are taken, else on standard error.
void say(Context& context, LogLevel level, const std::string& text) {
  messages::write_to_log_file(level, text);
  const std::string line = "triage: " + continued(text);
  if (!may_show(context, line.size() + 1)) return;
  if (context.print)
    context.print(line);
  else
    fmt::print(stderr, "{}\n", messages::printable(line));
}

/// A graph break of the call: with an argument such as a table the function runs as it is, which is said once.
void refuse_argument(lua_State* L, CompiledFunction& function, int index) {
  const bool raises = function.options.fullgraph || capture::OnGraphBreak::raises();
  if (function.odd_argument && !raises) return;
  lua_rawgeti(L, LUA_REGISTRYINDEX, function.function);
  const std::string name = parameter_names(L, -1, static_cast<size_t>(index) - 1).back();
  lua_pop(L, 1);
  const capture::UserCode code = user_code(L);
  const capture::GraphBreak odd{
      capture::Break::other_argument, fmt::format("argument {} ('{}') is a {}", index - 1, name, kind_of(L, index)),
      "Pass its values as separate arguments, or let the function read it as an upvalue.", code.where(), code.stack()};
  if (raises) throw odd.error();
  function.odd_argument = odd;
  if (function.options.warn && function.options.warn_of_breaks && messages::logs(messages::Artefact::graph_breaks))
    function.options.warn("'" + function.name +
                          "' runs as a script when it is called with such an argument: " + odd.text());
}

struct RunningFunction {
  RunningFunction(CompiledFunction& function, Context& own) : function(function), own(own) { function.running = true; }
  ~RunningFunction() {
    function.running = false;
    drop_held_memory(own, /*all=*/false);
  }
  RunningFunction(const RunningFunction&) = delete;
  RunningFunction& operator=(const RunningFunction&) = delete;
  CompiledFunction& function;
  Context& own;
};

/// Inside of a capture it is a part of that, except that one graph stays promised; a call of itself, a call under
/// `disable`, and one with arguments that are not for graphs, are calls of the plain function.
int call_as_script(lua_State* L, const CompiledFunction& function) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, function.function);
  lua_replace(L, 1);
  if (function.options.fullgraph) {
    push_scope_of<capture::OnGraphBreak>(L, capture::OnGraphBreak::Then::raise_for_good);
    return call_in_scope(L, 1);
  }
  call_for_all(L, lua_gettop(L) - 1);
  return lua_gettop(L);
}

/// A call like the last one, which has graph breaks, and where following gains nothing.
bool may_skip(const CompiledFunction& function, const std::string& arguments) {
  return function.calls_to_skip > 0 && function.last && function.last->compiled->gave_up() &&
         function.last_arguments == arguments && get_stance() == Stance::default_stance &&
         !capture::OnGraphBreak::raises() && !capture::BranchGuard::current() && has_its_graphs(function);
}

const char graph_count = 0;  // its address is a registry key

/// Graphs are kept, and loops for a GPU compiled for them, when the script that made them has long gone on.
void count_graphs(lua_State* L, int64_t more) {
  constexpr lua_Integer most = 1000;
  lua_rawgetp(L, LUA_REGISTRYINDEX, &graph_count);
  const lua_Integer count = lua_tointeger(L, -1) + more;
  lua_pop(L, 1);
  lua_pushinteger(L, count);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &graph_count);
  if (count > most)
    throw LimitError("a policy used up its budget of compiled functions and graphs (" + std::to_string(most) +
                     "); compile functions once, outside of loops and of code that runs on every call");
}

/// What a call has captured is charged to a policy: memory of C++ that Lua does not see.
void charge_graphs(lua_State* L, CompiledFunction& function) {
  const int64_t made = function.options.graphs_made->load(std::memory_order_relaxed);
  if (made == function.graphs_charged || !is_policy(L)) return;
  const int64_t more = made - std::exchange(function.graphs_charged, made);
  const size_t bytes = statistics_of(function).bytes;
  context(L).script_bytes += bytes - std::exchange(function.bytes_charged, bytes);
  charge(L, 0);
  if (more > 0) count_graphs(L, more);
}

int compiled_gc(lua_State* L) {
  auto* holder = static_cast<CompiledFunction**>(luaL_checkudata(L, 1, compiled_type));
  if (*holder) context(L).script_bytes -= (*holder)->bytes_charged;
  if (*holder) luaL_unref(L, LUA_REGISTRYINDEX, (*holder)->function);
  if (*holder) luaL_unref(L, LUA_REGISTRYINDEX, (*holder)->weak_references);
  delete std::exchange(*holder, nullptr);
  return 0;
}

int compiled_tostring(lua_State* L) {
  const CompiledFunction& function = check_compiled(L, 1);
  const size_t graphs = statistics_of(function).graphs;
  lua_pushfstring(L, "compiled function %s (%d %s)", function.name.c_str(), static_cast<int>(graphs),
                  graphs == 1 ? "graph" : "graphs");
  return 1;
}

/// f:cache()
int compiled_cache(lua_State* L) {
  const CompiledFunction& function = check_compiled(L, 1);
  break_graph(L, capture::Break::registry, "the script reads the cache of a compiled function",
              "Read it outside of the compiled code.");
  push_statistics(L, statistics_of(function));
  return 1;
}

/// f:finish_compiling()
int compiled_finish_compiling(lua_State* L) {
  const CompiledFunction& function = check_compiled(L, 1);
  if (is_policy(L))
    throw Error(
        "finish_compiling() waits for loops of a GPU, and a policy may not wait; the host can call Policy::prepare "
        "before the first call");
  break_graph(L, capture::Break::registry, "the script waits for the loops of a compiled function",
              "Wait for them outside of the compiled code.");
  finish_compiling(function);
  return 0;
}

constexpr size_t longest_name = 255;

/// `compiler = "off"` asks for what holds anyway, and stands in many scripts: it is told once in a process.
void tell_gone(lua_State* L, const std::string& key, const std::string& gone) {
  static std::atomic<bool> told{false};
  const bool holds =
      key == "compiler" && lua_type(L, -1) == LUA_TSTRING && lua_tostring(L, -1) == std::string_view("off");
  if (!holds) throw InputError("triage.compile: " + gone);
  if (!told.exchange(true)) messages::warn("triage.compile: " + gone);
}

void read_compile_options(lua_State* L, int index, CompiledFunction& function) {
  if (lua_isnoneornil(L, index)) return;
  table_argument(L, {index, "triage.compile", "options"});
  lua_pushnil(L);
  while (lua_next(L, index)) {
    std::string key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
    if (key == "fullgraph" && lua_isboolean(L, -1))
      function.options.fullgraph = lua_toboolean(L, -1);
    else if (key == "backend" && (lua_type(L, -1) == LUA_TSTRING || lua_isfunction(L, -1)))
      function.options.compile_with = on_behalf_of("triage.compile", [&] {
        function.options.backend = lua_isfunction(L, -1) ? "of the script" : lua_tostring(L, -1);
        return backend_at(L, lua_gettop(L), function.caller);
      });
    else if (const CompileProfiler* profiler = key == "backend" ? test_compile_profiler(L, -1) : nullptr) {
      function.options.backend = "CompileProfiler";
      function.options.compile_with = profiler->backend();
      function.options.observer = profiler->observer();
    } else if (key == "fail_on_backend_error" && lua_isboolean(L, -1))
      function.options.fail_on_backend_error = lua_toboolean(L, -1);
    else if (key == "masked_rows" && lua_type(L, -1) == LUA_TSTRING)
      function.options.masked_rows =
          on_behalf_of("triage.compile", [&] { return masked_rows_from(lua_tostring(L, -1)); });
    else if (key == "dynamic" && lua_isboolean(L, -1))
      function.options.dynamic = lua_toboolean(L, -1);
    else if (key == "warn" && lua_isboolean(L, -1))
      function.options.warn_of_breaks = lua_toboolean(L, -1);
    else if (key == "name" && lua_type(L, -1) == LUA_TSTRING && lua_rawlen(L, -1) <= longest_name)
      function.name = lua_tostring(L, -1);
    else if (const std::string gone = text_if_gone(key); !gone.empty())
      tell_gone(L, key, gone);
    else
      throw InputError(
          "triage.compile: option '" + (key.empty() ? std::string("?") : key) +
          "' is unknown or has the wrong type. Options: fullgraph (boolean), backend (string, function or "
          "CompileProfiler), "
          "fail_on_backend_error (boolean), masked_rows (warn or require), dynamic (boolean), warn (boolean), "
          "name (a string of at most 255 bytes).");
    lua_pop(L, 1);
  }
}

}  // namespace

const CompiledFunction* test_compiled(lua_State* L, int index) {
  auto** holder = static_cast<CompiledFunction**>(luaL_testudata(L, index, compiled_type));
  return holder ? *holder : nullptr;
}

std::vector<std::string> parameter_names(lua_State* L, int index, size_t count) {
  const int base = lua_gettop(L);
  reserve(L, 0, "parameters");
  push_wrapped(L, index);
  int skipped = 0;
  if (!lua_isfunction(L, -1)) {
    skipped = 1;  // self
    if (lua_istable(L, -1)) lua_getfield(L, -1, "forward");
    see_through_forwarding(L);
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) {
    const char* name = lua_isfunction(L, -1) ? lua_getlocal(L, nullptr, static_cast<int>(i) + 1 + skipped) : nullptr;
    const bool known = name && std::find(names.begin(), names.end(), name) == names.end();
    names.push_back(known ? name : "x" + std::to_string(i));
  }
  lua_settop(L, base);
  return names;
}

int push_results(lua_State* L, int last, const std::vector<at::Tensor>& results) {
  const int first_pushed = lua_gettop(L) + 1;
  for (size_t i = 0; i < results.size(); ++i) {
    const auto is_this = [&](const at::Tensor& other) { return other.is_same(results[i]); };
    int same = 2;
    const auto is_same = [&](int argument) {
      const at::Tensor* given = test_tensor(L, argument);
      return given && is_this(*given);
    };
    while (same <= last && !is_same(same)) ++same;
    const auto first = static_cast<size_t>(std::find_if(results.begin(), results.end(), is_this) - results.begin());
    if (same <= last)
      lua_pushvalue(L, same);
    else if (first < i)
      lua_pushvalue(L, first_pushed + static_cast<int>(first));
    else
      push_tensor(L, results[i]);
  }
  return static_cast<int>(results.size());
}

static int call_unrecorded(lua_State* L) {
  CompiledFunction& function = check_compiled(L, 1);
  const int arguments_end = lua_gettop(L);
  std::vector<at::Tensor> inputs, outputs;
  std::string arguments;
  const int odd = read_arguments(L, 2, inputs, arguments);
  const bool captured = Recorder::current() || capture::TraceReplayer::current();
  const bool plain = captured || capture::NotCaptured::nested() || function.running;
  if (odd && !plain && get_stance() != Stance::force_eager) refuse_argument(L, function, odd);
  if (plain || odd) return call_as_script(L, function);
  if (may_skip(function, arguments)) {
    --function.calls_to_skip;
    const capture::NotFollowed not_followed;
    return call_as_script(L, function);
  }
  if (auto* branch = capture::BranchGuard::current())  // the graph's own operators do not ask it
    for (auto& input : inputs) input = branch->guarded(input);
  const std::shared_ptr<CompiledFunction::CachePartition> partition = partition_for(L, function, arguments);
  {
    const RunningFunction running(function, context(L));
    partition->script->prepare_call(L, 2);
    function.caller->L = L;
    const bool had_breaks = partition->compiled->has_breaks();
    const lua_Integer allowed_writes = count_allowed_writes(L);
    const GraphTerms terms(L);
    const messages::ProfilerSpan span([&] { return "function " + function.name; });
    partition->compiled->run(inputs, {}, {context(L).deadline}, outputs);
    if (count_allowed_writes(L) != allowed_writes) find_without_allowed_writes(L, function, arguments, partition);
    if (!had_breaks && partition->compiled->has_breaks()) ++function.broken_partitions;
    function.calls_to_skip = partition->compiled->skip_calls();
    charge_graphs(L, function);
  }
  int other = partition->script->take_results();
  if (other != LUA_NOREF) {
    lua_rawgeti(L, LUA_REGISTRYINDEX, other);
    luaL_unref(L, LUA_REGISTRYINDEX, other);
    lua_getfield(L, -1, "n");
    int count = static_cast<int>(lua_tointeger(L, -1)), list = lua_gettop(L) - 1;
    lua_pop(L, 1);
    reserve(L, static_cast<size_t>(count), "too many results");
    for (int i = 1; i <= count; ++i) lua_rawgeti(L, list, i);
    return count;
  }
  reserve(L, outputs.size(), "too many results");
  if (auto* tracker = capture::FlagsTracker::current()) {
    const std::vector<bool> is_flags = partition->compiled->flags_outputs();
    for (size_t i = 0; i < outputs.size() && i < is_flags.size(); ++i)
      if (is_flags[i]) tracker->add(outputs[i]);
  }
  return push_results(L, arguments_end, outputs);
}

int call_compiled(lua_State* L) {
  if (!is_recorded(L)) return call_unrecorded(L);
  const int results = call_recorded(L, check_compiled(L, 1), guarded<call_unrecorded>);
  return results < 0 ? lua_error(L) : results;
}

CompiledFunction& push_compiled(lua_State* L) {
  check_callable(L, 1, "triage.compile");
  if (is_policy(L)) count_graphs(L, 1);
  auto function = std::make_unique<CompiledFunction>();
  function->name = function_name(L, 1);
  function->made_at = current_line(L);
  function->options.protect_inputs = false;
  function->options.warn = [&context = context(L)](const std::string& text) { say(context, LogLevel::warn, text); };
  function->options.inform = [&context = context(L)](const std::string& text) {
    if (messages::logs(messages::Artefact::recompiles)) say(context, LogLevel::info, text);
  };
  function->options.graphs_made = std::make_shared<std::atomic<int64_t>>(0);
  function->options.warned = std::make_shared<Compiled::Options::Warned>();
  read_compile_options(L, 2, *function);
  function->name = messages::one_line(function->name);  // messages, graphs and files show it
  if (!function->options.compile_with) function->options.compile_with = find_backend(function->options.backend);
  function->options.clock = std::make_shared<capture::CompileClock>();
  function->options.traces = new_traces(*function);
  lua_pushvalue(L, 1);
  function->function = luaL_ref(L, LUA_REGISTRYINDEX);
  auto** holder = static_cast<CompiledFunction**>(lua_newuserdatauv(L, sizeof(CompiledFunction*), 0));
  *holder = function.release();
  luaL_setmetatable(L, compiled_type);
  return **holder;
}

int compiled_function_of(lua_State* L, int index) {
  auto* holder = static_cast<CompiledFunction**>(luaL_testudata(L, index, compiled_type));
  return holder && *holder ? (*holder)->function : LUA_NOREF;
}

void open_compiled(lua_State* L) {
  static const luaL_Reg meta[] = {{"__call", guarded<call_compiled>},
                                  {"__gc", guarded<compiled_gc>},
                                  {"__tostring", guarded<compiled_tostring>},
                                  {nullptr, nullptr}};
  luaL_newmetatable(L, compiled_type);
  luaL_setfuncs(L, meta, 0);
  lua_createtable(L, 0, 2);
  static const LimitedFunction methods[] = {{"cache", guarded<compiled_cache>, 1},
                                            {"finish_compiling", guarded<compiled_finish_compiling>, 1}};
  set_limited(L, "compiled:", methods);
  lua_setfield(L, -2, "__index");
  lua_pushliteral(L, "compiled function");
  lua_setfield(L, -2, "__metatable");
  lua_pop(L, 1);
}

}  // namespace triage::lua
