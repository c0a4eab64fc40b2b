#include "bindings/lua/compile/closures/closure_environments.h"

#include "bindings/lua/capture/user_code.h"
#include "bindings/lua/compile/closures/differences.h"
#include "bindings/lua/compile/closures/environment_guards.h"
#include "bindings/lua/state/userdata.h"
#include "runtime/backends/repro.h"
#include "runtime/capture/replay/trace_tree.h"
#include "runtime/capture/reports/compile_clock.h"
#include "runtime/capture/reports/compile_observer.h"
#include "runtime/capture/reports/logs.h"
#include "runtime/capture/reports/recompile_reasons.h"
#include "runtime/capture/reports/trace_events.h"
#include "runtime/messages/debugging/trace_file.h"
#include "runtime/messages/logs/artefacts.h"

#include <fmt/format.h>
#include <triage/compiler_config.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <string_view>
#include <utility>

namespace triage::lua {
namespace {

using CachePartition = CompiledFunction::CachePartition;
using ClosureEnvironment = CompiledFunction::ClosureEnvironment;

constexpr size_t max_environments_without_graphs = 64;
constexpr int misses_between_sweeps = 16;
constexpr int max_broken_partitions = 3;
constexpr int max_too_large_environments = 3;
constexpr size_t most_reasons = 16;  // of a recompile: the newest
std::atomic<uint64_t> generation{0};

lua_Integer count_keys(lua_State* L, int table) {
  lua_Integer count = 0;
  for (lua_pushnil(L); lua_next(L, table); lua_pop(L, 1)) ++count;
  return count;
}

/// Pushes the table in which each partition has, under its number, what its key names by address.
void push_weak_references(lua_State* L, CompiledFunction& function) {
  if (function.weak_references == LUA_NOREF) {
    lua_newtable(L);
    function.weak_references = luaL_ref(L, LUA_REGISTRYINDEX);
  }
  lua_rawgeti(L, LUA_REGISTRYINDEX, function.weak_references);
}

/// The table on top of the stack is what the partition's key names. Pops it. None of it is kept alive by that.
void set_weak_references(lua_State* L, CompiledFunction& function, CachePartition& partition) {
  partition.weak_references = count_keys(L, lua_gettop(L));
  make_weak(L);
  push_weak_references(L, function);
  lua_insert(L, -2);
  lua_rawseti(L, -2, partition.number);
  lua_pop(L, 1);
}

/// Is all alive that the partition's key names by address? Else it may name something new, at the address of something
/// old.
bool is_alive(lua_State* L, CompiledFunction& function, const CachePartition& partition) {
  push_weak_references(L, function);
  lua_rawgeti(L, -1, partition.number);
  const bool alive = count_keys(L, lua_gettop(L)) == partition.weak_references;
  lua_pop(L, 2);
  return alive;
}

using PartitionIterator = decltype(CompiledFunction::partitions)::iterator;

/// No call finds the partition any more.
PartitionIterator take_out(lua_State* L, CompiledFunction& function, PartitionIterator place) {
  push_weak_references(L, function);
  lua_pushnil(L);
  lua_rawseti(L, -2, place->second->number);
  lua_pop(L, 1);
  return function.partitions.erase(place);
}

/// ... and its graphs count no more.
PartitionIterator drop(lua_State* L, CompiledFunction& function, PartitionIterator place) {
  const CacheStatistics gone = place->second->compiled->statistics();
  function.options.graphs_made->fetch_sub(static_cast<int64_t>(gone.graphs + gone.retired), std::memory_order_relaxed);
  return take_out(L, function, place);
}

/// Of the tensors among the arguments.
std::vector<std::string> input_names(lua_State* L, const CompiledFunction& function,
                                     const ClosureEnvironment& environment) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, function.function);
  const std::vector<std::string> all = parameter_names(L, -1, std::min<size_t>(environment.arguments.size(), 64));
  lua_pop(L, 1);
  std::vector<std::string> names;
  for (size_t i = 0; i < all.size(); ++i)
    if (is_tensor_argument(environment, i)) names.push_back(all[i]);
  return names;
}

std::shared_ptr<CachePartition> make_partition(lua_State* L, CompiledFunction& function, ClosureEnvironment environment,
                                               capture::Compiled::Options options) {
  const std::vector<std::string> inputs = input_names(L, function, environment);
  auto partition = std::make_shared<CachePartition>();
  options.last_reason = [&function, own = partition.get()] {
    const std::vector<const CachePartition*> all = partitions_in_order(function);
    const auto other = std::find_if(all.rbegin(), all.rend(), [&](const CachePartition* one) { return one != own; });
    return other == all.rend()
               ? std::string()
               : difference(function.caller->L, function.function, (*other)->environment, own->environment);
  };
  options.other_guards = [&function, own = partition.get()] {
    return environment_guards(function.caller->L, function, own->environment);
  };
  partition->script = std::make_shared<FunctionScript>(L, function, inputs);
  partition->compiled = std::make_unique<capture::Compiled>(partition->script, std::move(options));
  partition->environment = std::move(environment);
  partition->number = ++function.partitions_made;
  return partition;
}

/// To whoever observes or traces captures: why the newest graphs do not fit.
void tell_observers(lua_State* L, const CompiledFunction& function, const ClosureEnvironment& newest,
                    const ClosureEnvironment& now) {
  const bool traced = messages::trace_on() && get_stance() == Stance::default_stance;
  if (!function.options.observer && !traced) return;
  const Source where = place_of(L, function.function, function.made_at).where;
  const std::string why = difference(L, function.function, newest, now);
  if (function.options.observer) function.options.observer->recompiled(function.name, where, why);
  if (traced) capture::trace_recompile(function.name, where, why);
}

/// Each of these recompiles meets no limit of its own, and there may be hundreds before the one for all of them is met.
void warn_of_recompiles(lua_State* L, CompiledFunction& function, const ClosureEnvironment& newest,
                        const ClosureEnvironment& now) {
  constexpr size_t most_guards = 1000;
  if (!function.options.warn || get_stance() != Stance::default_stance) return;
  const CompilerConfig config = get_compiler_config();
  const std::string guard = differing_guard(newest, now);
  if (function.recompiles.size() == most_guards && function.recompiles.count(guard) == 0) return;
  const int64_t times = ++function.recompiles[guard];
  if (times < config.recompile_limit || !function.options.warned->limits.insert("recompiles").second) return;
  const Source caller = user_code(L).where();
  function.options.warn(
      fmt::format("{} was captured again {} times, each time because of the same guard: {}{}. Hint: {}. "
                  "TRIAGE_LOGS=recompiles shows every reason; after {} graphs "
                  "(triage.config.accumulated_recompile_limit) the script runs.",
                  capture::named(function.name, place_of(L, function.function, function.made_at).where), times,
                  difference(L, function.function, newest, now),
                  caller.file.empty() ? "" : fmt::format(" (called at {}:{})", caller.file, caller.line),
                  capture::advice_for(guard), config.accumulated_recompile_limit));
}

void log_recompile(lua_State* L, const CompiledFunction& function, const std::vector<const CachePartition*>& partitions,
                   const ClosureEnvironment& now) {
  const Stance stance = get_stance();
  if (!function.options.inform || !messages::logs(messages::Artefact::recompiles) ||
      !capture::reports_recompiles(stance))
    return;
  std::string text =
      capture::recompile_heading(function.name, place_of(L, function.function, function.made_at).where, stance);
  const size_t first = partitions.size() - std::min(partitions.size(), most_reasons);
  if (first > 0) text += fmt::format("\n  - the guards of {} older graphs do not hold either", first);
  std::vector<capture::MisfitGraph> misfits;
  for (size_t i = first; i < partitions.size(); ++i)
    misfits.push_back({fmt::format("{}/0", partitions[i]->number - 1),
                       difference(L, function.function, partitions[i]->environment, now)});
  function.options.inform(text + capture::reason_lines(misfits));
}

void report_recompile(lua_State* L, CompiledFunction& function, const ClosureEnvironment& now) {
  const std::vector<const CachePartition*> partitions = partitions_in_order(function);
  if (partitions.empty()) return;
  tell_observers(L, function, partitions.back()->environment, now);
  warn_of_recompiles(L, function, partitions.back()->environment, now);
  log_recompile(L, function, partitions, now);
}

void forget_graphs(lua_State* L, CompiledFunction& function) {
  function.generation = generation.load(std::memory_order_relaxed);
  function.partitions.clear();
  function.partitions_made = 0;
  function.sweep_at = 0;
  function.last.reset();
  function.followed.reset();
  function.beyond.reset();
  function.broken_partitions = function.too_large_environments = 0;
  function.options.graphs_made = std::make_shared<std::atomic<int64_t>>(0);
  function.options.traces = new_traces(function);
  function.options.warned = std::make_shared<capture::Compiled::Options::Warned>();
  function.recompiles.clear();
  function.odd_argument.reset();
  luaL_unref(L, LUA_REGISTRYINDEX, std::exchange(function.weak_references, LUA_NOREF));
}

/// Environments that came to no graph (under a stance that makes none, say) are not kept for ever: no limit counts
/// them. Nor are those that cannot come again, which hold the tensors that their graphs read.
void drop_useless_environments(lua_State* L, CompiledFunction& function) {
  const bool too_many = function.partitions.size() >= std::max(function.sweep_at, max_environments_without_graphs);
  if (!too_many && ++function.misses % misses_between_sweeps != 0) return;
  const auto is_useless = [&](const CachePartition& partition) {
    const bool empty = partition.compiled->statistics().graphs == 0 && !partition.compiled->has_breaks();
    return (too_many && empty) || !is_alive(L, function, partition);
  };
  for (PartitionIterator place = function.partitions.begin(); place != function.partitions.end();)
    place = is_useless(*place->second) ? drop(L, function, place) : std::next(place);
  if (too_many) function.sweep_at = function.partitions.size() + max_environments_without_graphs;
}

/// Which of the arguments, up to the stack index `last`, are variables of the function, and which: none where none is.
std::string variables_among(lua_State* L, int last, const Variables& variables) {
  std::string found;
  if (variables.numbers.empty()) return found;
  for (int i = 2; i <= last; ++i) {
    const auto variable = variables.numbers.find(lua_touserdata(L, i));
    if (variable != variables.numbers.end()) found += 'v' + std::to_string(i) + ':' + std::to_string(variable->second);
  }
  return found;
}

/// What the function can see besides its arguments goes into `environment`. Pushes the table of what the key names by
/// address.
void read_closure_environment(lua_State* L, const CompiledFunction& function, const std::string& arguments,
                              ClosureEnvironment& environment) {
  const int last_argument = lua_gettop(L);
  lua_newtable(L);
  lua_rawgeti(L, LUA_REGISTRYINDEX, function.function);
  environment.parts.clear();
  environment.variables = {};
  const std::string state =
      closure_state(L, -1, lua_gettop(L) - 1, environment.variables, environment.parts, environment.too_much);
  lua_pop(L, 1);
  environment.key = arguments + variables_among(L, last_argument, environment.variables) + '|';
  environment.state_begin = environment.key.size();
  environment.key += state;
}

/// For all environments from now on: the function broke in several (it counts its calls, say), or can read so much that
/// a graph would hold until the next write only.
std::shared_ptr<CachePartition> replayed_partition(lua_State* L, CompiledFunction& function,
                                                   ClosureEnvironment environment) {
  if (!function.followed) {
    function.followed = make_partition(L, function, std::move(environment), function.options);
    function.followed->compiled->replay_always();
  }
  return function.followed;
}

/// For all environments that have no graphs yet, once there are as many graphs as there may be: it runs the script.
std::shared_ptr<CachePartition> over_limit_partition(lua_State* L, CompiledFunction& function,
                                                     ClosureEnvironment environment) {
  if (!function.beyond) {
    capture::Compiled::Options options = function.options;
    options.recompile_limit = 0;  // it serves any environment, so it may hold no graph, whatever the settings become
    function.beyond = make_partition(L, function, std::move(environment), std::move(options));
  } else {
    function.beyond->environment = std::move(environment);  // of this call, for the reason that is told
  }
  return function.beyond;
}

/// For an environment that has no partition. The table of what its key names is on top of the stack, and popped.
std::shared_ptr<CachePartition> new_partition_for(lua_State* L, CompiledFunction& function,
                                                  ClosureEnvironment environment) {
  drop_useless_environments(L, function);
  function.too_large_environments += environment.too_much;
  const bool broken = function.broken_partitions >= max_broken_partitions ||
                      function.too_large_environments > max_too_large_environments;
  const int64_t limit = get_compiler_config().accumulated_recompile_limit;
  if (broken || function.options.graphs_made->load(std::memory_order_relaxed) >= limit) {
    lua_pop(L, 1);
    return broken ? replayed_partition(L, function, std::move(environment))
                  : over_limit_partition(L, function, std::move(environment));
  }
  report_recompile(L, function, environment);
  std::shared_ptr<CachePartition> partition = make_partition(L, function, std::move(environment), function.options);
  partition->script->set_variables(&partition->environment.variables);
  set_weak_references(L, function, *partition);
  function.partitions.emplace(partition->environment.key, partition);
  return partition;
}

}  // namespace

std::shared_ptr<CachePartition> partition_for(lua_State* L, CompiledFunction& function, const std::string& arguments) {
  if (!has_its_graphs(function)) forget_graphs(L, function);
  const int last_argument = lua_gettop(L);
  if (function.last && function.last_epoch == context(L).epoch && function.last_arguments == arguments &&
      function.last_variables == variables_among(L, last_argument, function.last->environment.variables))
    return function.last;
  ClosureEnvironment environment;
  read_closure_environment(L, function, arguments, environment);
  std::shared_ptr<CachePartition> partition;
  auto found = function.partitions.find(environment.key);
  if (found != function.partitions.end() && !is_alive(L, function, *found->second)) {
    drop(L, function, found);
    found = function.partitions.end();
  }
  if (found != function.partitions.end()) {
    lua_pop(L, 1);
    partition = found->second;
    partition->environment.variables = std::move(environment.variables);
  } else {
    note_arguments(L, function.function, last_argument, environment);
    partition = new_partition_for(L, function, std::move(environment));
  }
  if (function.last && function.last != partition)
    function.last->environment.variables = {};  // read again, should it come again
  function.last = partition;
  function.last_epoch = context(L).epoch;
  function.last_arguments = arguments;
  function.last_variables = variables_among(L, last_argument, partition->environment.variables);
  return partition;
}

void find_without_allowed_writes(lua_State* L, CompiledFunction& function, const std::string& arguments,
                                 const std::shared_ptr<CachePartition>& partition) {
  const auto place = std::find_if(function.partitions.begin(), function.partitions.end(),
                                  [&](const auto& known) { return known.second == partition; });
  if (place == function.partitions.end()) return;  // it serves all environments
  take_out(L, function, place);
  const Variables before = std::move(partition->environment.variables);
  read_closure_environment(L, function, arguments, partition->environment);
  const Variables& after = partition->environment.variables;
  std::vector<size_t> now(before.tensors.size(), after.tensors.size());
  for (const auto& [userdata, number] : before.numbers)
    if (const auto found = after.numbers.find(userdata); found != after.numbers.end()) now[number] = found->second;
  function.last.reset();
  if (!partition->compiled->renumber_variables(now)) return lua_pop(L, 1);
  set_weak_references(L, function, *partition);
  if (const auto other = function.partitions.find(partition->environment.key); other != function.partitions.end())
    drop(L, function, other);  // with the key that names it
  function.partitions.emplace(partition->environment.key, partition);
}

std::vector<const CachePartition*> partitions_in_order(const CompiledFunction& function) {
  std::vector<const CachePartition*> partitions;
  for (const auto& [key, partition] : function.partitions) partitions.push_back(partition.get());
  std::sort(partitions.begin(), partitions.end(),
            [](const CachePartition* a, const CachePartition* b) { return a->number < b->number; });
  return partitions;
}

std::shared_ptr<capture::TraceTree> new_traces(const CompiledFunction& function) {
  const std::string& name = function.options.backend;
  Backend backend = function.options.clock->timed(capture::with_step(function.options.compile_with, name));
  return std::make_shared<capture::TraceTree>(function.name, with_repro(std::move(backend), name), name);
}

CacheStatistics statistics_of(const CompiledFunction& function) {
  CacheStatistics all;
  for (const auto& [key, partition] : function.partitions) {
    const CacheStatistics one = partition->compiled->statistics();
    all.graphs += one.graphs;
    all.retired += one.retired;
    all.bytes += one.bytes + key.size();
    all.loops += one.loops;
  }
  capture::add_segments(all, function.options.traces->segments);
  return all;
}

void push_statistics(lua_State* L, const CacheStatistics& statistics) {
  lua_createtable(L, 0, 6);
  for (const auto& [name, count] :
       {std::pair("graphs", statistics.graphs), std::pair("segments", statistics.segments),
        std::pair("retired", statistics.retired), std::pair("bytes", statistics.bytes),
        std::pair("kernels", statistics.loops.kernels), std::pair("tapes", statistics.loops.tapes)}) {
    lua_pushinteger(L, static_cast<lua_Integer>(count));
    lua_setfield(L, -2, name);
  }
}

void finish_compiling(const CompiledFunction& function) {
  for (const auto& [key, partition] : function.partitions)
    for (const capture::CacheEntry* entry : partition->compiled->entries()) entry->executable->finish_compiling();
  function.options.traces->finish_compiling();
}

bool has_its_graphs(const CompiledFunction& function) noexcept {
  return function.generation == generation.load(std::memory_order_relaxed);
}

void forget_all_graphs() noexcept { generation.fetch_add(1, std::memory_order_relaxed); }

}  // namespace triage::lua
