#include "bindings/lua/compile/worlds.h"

#include "bindings/lua/state/userdata.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/compile_clock.h"
#include "runtime/capture/following/trace_tree.h"
#include "runtime/capture/logs.h"

#include <fmt/format.h>
#include <triage/compiler_config.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <utility>

namespace triage::lua {
namespace {

using Bucket = CompiledFunction::Bucket;
using World = CompiledFunction::World;

constexpr size_t max_worlds_without_graphs = 64;
constexpr int misses_between_sweeps = 16;
constexpr int max_broken_buckets = 3;
constexpr int max_too_large_worlds = 3;
constexpr size_t most_reasons = 16;  // of a recompile: the newest
constexpr const char* tensor_text = "a tensor";
constexpr const char* same_tensor_text = "the same tensor as argument ";
std::atomic<uint64_t> generation{0};

lua_Integer count_keys(lua_State* L, int table) {
  lua_Integer count = 0;
  for (lua_pushnil(L); lua_next(L, table); lua_pop(L, 1)) ++count;
  return count;
}

/// Pushes the table in which each bucket has, under its number, what its key names by address.
void push_anchors(lua_State* L, CompiledFunction& function) {
  if (function.anchors == LUA_NOREF) {
    lua_newtable(L);
    function.anchors = luaL_ref(L, LUA_REGISTRYINDEX);
  }
  lua_rawgeti(L, LUA_REGISTRYINDEX, function.anchors);
}

/// The table on top of the stack is what the bucket's key names. Pops it. None of it is kept alive by that.
void set_anchors(lua_State* L, CompiledFunction& function, Bucket& bucket) {
  bucket.anchors = count_keys(L, lua_gettop(L));
  make_weak(L);
  push_anchors(L, function);
  lua_insert(L, -2);
  lua_rawseti(L, -2, bucket.number);
  lua_pop(L, 1);
}

/// Is all alive that the bucket's key names by address? Else it may name something new, at the address of something old.
bool is_alive(lua_State* L, CompiledFunction& function, const Bucket& bucket) {
  push_anchors(L, function);
  lua_rawgeti(L, -1, bucket.number);
  const bool alive = count_keys(L, lua_gettop(L)) == bucket.anchors;
  lua_pop(L, 2);
  return alive;
}

using Place = decltype(CompiledFunction::buckets)::iterator;

/// No call finds the bucket any more.
Place take_out(lua_State* L, CompiledFunction& function, Place place) {
  push_anchors(L, function);
  lua_pushnil(L);
  lua_rawseti(L, -2, place->second->number);
  lua_pop(L, 1);
  return function.buckets.erase(place);
}

/// ... and its graphs count no more.
Place drop(lua_State* L, CompiledFunction& function, Place place) {
  const CacheStatistics gone = place->second->compiled->statistics();
  function.options.graphs_made->fetch_sub(static_cast<int64_t>(gone.graphs + gone.retired), std::memory_order_relaxed);
  return take_out(L, function, place);
}

/// Of the tensors among the arguments.
std::vector<std::string> input_names(lua_State* L, const CompiledFunction& function, const World& world) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, function.function);
  const std::vector<std::string> all = parameter_names(L, -1, std::min<size_t>(world.arguments.size(), 64));
  lua_pop(L, 1);
  std::vector<std::string> names;
  for (size_t i = 0; i < all.size(); ++i)
    if (is_tensor_argument(world, i)) names.push_back(all[i]);
  return names;
}

std::string difference(const World& before, const World& now);

std::shared_ptr<Bucket> make_bucket(lua_State* L, CompiledFunction& function, World world,
                                    capture::Compiled::Options options) {
  const std::vector<std::string> inputs = input_names(L, function, world);
  auto bucket = std::make_shared<Bucket>();
  options.last_reason = [&function, own = bucket.get()] {
    const std::vector<const Bucket*> all = buckets_in_order(function);
    const auto other = std::find_if(all.rbegin(), all.rend(), [&](const Bucket* one) { return one != own; });
    return other == all.rend() ? std::string() : difference((*other)->world, own->world);
  };
  bucket->script = std::make_shared<FunctionScript>(L, function, inputs);
  bucket->compiled = std::make_unique<capture::Compiled>(bucket->script, std::move(options));
  bucket->world = std::move(world);
  bucket->number = ++function.buckets_made;
  return bucket;
}

/// As Lua prints it, unless that is another number.
std::string float_text(lua_State* L, int index) {
  const lua_Number number = lua_tonumber(L, index);
  std::string text = luaL_tolstring(L, index, nullptr);
  lua_pop(L, 1);
  const bool exact = number != number || std::strtod(text.c_str(), nullptr) == number;
  return exact ? text : fmt::format("{}", number);
}

/// The arguments of the call, which begin at stack index 2, as a person writes them.
std::vector<std::string> argument_texts(lua_State* L, int last) {
  std::vector<std::string> texts;
  for (int i = 2; i <= last; ++i) {
    const bool quoted = lua_type(L, i) == LUA_TSTRING;
    if (test_tensor(L, i)) {
      int first = 2;
      while (!lua_rawequal(L, first, i)) ++first;
      texts.push_back(first == i ? tensor_text : same_tensor_text + std::to_string(first - 1));
      continue;
    }
    if (lua_type(L, i) == LUA_TNUMBER && !lua_isinteger(L, i)) {
      texts.push_back(float_text(L, i));
      continue;
    }
    luaL_tolstring(L, i, nullptr);
    texts.push_back(quoted ? "'" + std::string(lua_tostring(L, -1)) + "'" : lua_tostring(L, -1));
    lua_pop(L, 1);
  }
  return texts;
}

std::string_view part_of(const World& world, size_t part) {
  const size_t begin = part ? world.parts[part - 1].second : 0;
  return std::string_view(world.key).substr(world.state_begin + begin, world.parts[part].second - begin);
}

/// What of `now` is not as it was in `before`.
std::string difference(const World& before, const World& now) {
  for (size_t i = 0; i < std::max(before.arguments.size(), now.arguments.size()); ++i) {
    const std::string was = i < before.arguments.size() ? before.arguments[i] : "nothing";
    const std::string is = i < now.arguments.size() ? now.arguments[i] : "nothing";
    const bool parted = is == tensor_text && was.rfind(same_tensor_text, 0) == 0;
    if (was != is) return fmt::format("argument {} was {}, is {}", i + 1, was, parted ? "another one" : is);
  }
  for (size_t i = 0; i < before.parts.size() && i < now.parts.size(); ++i)
    if (part_of(before, i) != part_of(now, i)) return now.parts[i].first + " changed";
  const bool same_arguments = before.key.substr(0, before.state_begin) == now.key.substr(0, now.state_begin);
  return same_arguments ? "what the function may read changed"
                        : "a tensor among the arguments is now a variable of the function as well, or was one";
}

void report_recompile(lua_State* L, const CompiledFunction& function, const World& now) {
  const Stance stance = get_stance();
  if (function.buckets.empty() || !function.options.inform || !capture::get_logs().recompiles ||
      !capture::reports_recompiles(stance))
    return;
  std::string text =
      capture::recompile_heading(function.name, place_of(L, function.function, function.made_at).where, stance);
  const std::vector<const Bucket*> buckets = buckets_in_order(function);
  const size_t first = buckets.size() - std::min(buckets.size(), most_reasons);
  if (first > 0) text += fmt::format("\n  - {} older graphs do not fit either", first);
  for (size_t i = first; i < buckets.size(); ++i)
    text += fmt::format("\n  - {}/0: {}", buckets[i]->number - 1, difference(buckets[i]->world, now));
  function.options.inform(text);
}

void forget_graphs(lua_State* L, CompiledFunction& function) {
  function.generation = generation.load(std::memory_order_relaxed);
  function.buckets.clear();
  function.buckets_made = 0;
  function.sweep_at = 0;
  function.last.reset();
  function.followed.reset();
  function.beyond.reset();
  function.broken_buckets = function.too_large_worlds = 0;
  function.options.graphs_made = std::make_shared<std::atomic<int64_t>>(0);
  function.options.traces = new_traces(function);
  function.options.warned = std::make_shared<capture::Compiled::Warned>();
  function.odd_argument.reset();
  luaL_unref(L, LUA_REGISTRYINDEX, std::exchange(function.anchors, LUA_NOREF));
}

/// Worlds that came to no graph (under a stance that makes none, say) are not kept for ever: no limit counts them. Nor are those
/// that cannot come again, which hold the tensors that their graphs read.
void drop_useless_worlds(lua_State* L, CompiledFunction& function) {
  const bool too_many = function.buckets.size() >= std::max(function.sweep_at, max_worlds_without_graphs);
  if (!too_many && ++function.misses % misses_between_sweeps != 0) return;
  const auto is_useless = [&](const Bucket& bucket) {
    const bool empty = bucket.compiled->statistics().graphs == 0 && !bucket.compiled->has_breaks();
    return (too_many && empty) || !is_alive(L, function, bucket);
  };
  for (Place place = function.buckets.begin(); place != function.buckets.end();)
    place = is_useless(*place->second) ? drop(L, function, place) : std::next(place);
  if (too_many) function.sweep_at = function.buckets.size() + max_worlds_without_graphs;
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

/// What the function can see besides its arguments goes into `world`. Pushes the table of what the key names by address.
void read_world(lua_State* L, const CompiledFunction& function, const std::string& arguments, World& world) {
  const int last_argument = lua_gettop(L);
  lua_newtable(L);
  lua_rawgeti(L, LUA_REGISTRYINDEX, function.function);
  world.parts.clear();
  world.variables = {};
  const std::string state = closure_state(L, -1, lua_gettop(L) - 1, world.variables, world.parts, world.too_much);
  lua_pop(L, 1);
  world.key = arguments + variables_among(L, last_argument, world.variables) + '|';
  world.state_begin = world.key.size();
  world.key += state;
}

/// For all worlds from now on: the function broke in several (it counts its calls, say), or can read so much that a graph would
/// hold until the next write only.
std::shared_ptr<Bucket> followed_bucket(lua_State* L, CompiledFunction& function, World world) {
  if (!function.followed) {
    function.followed = make_bucket(L, function, std::move(world), function.options);
    function.followed->compiled->follow_always();
  }
  return function.followed;
}

/// For all worlds that have no graphs yet, once there are as many graphs as there may be: it runs the script.
std::shared_ptr<Bucket> beyond_bucket(lua_State* L, CompiledFunction& function, World world) {
  if (!function.beyond) {
    capture::Compiled::Options options = function.options;
    options.recompile_limit = 0;  // it serves any world, so it may hold no graph, whatever the settings become
    function.beyond = make_bucket(L, function, std::move(world), std::move(options));
  } else {
    function.beyond->world = std::move(world);  // of this call, for the reason that is told
  }
  return function.beyond;
}

/// For a world that has no bucket. The table of what its key names is on top of the stack, and popped.
std::shared_ptr<Bucket> new_bucket_for(lua_State* L, CompiledFunction& function, World world) {
  drop_useless_worlds(L, function);
  function.too_large_worlds += world.too_much;
  const bool broken = function.broken_buckets >= max_broken_buckets || function.too_large_worlds > max_too_large_worlds;
  const int64_t limit = get_compiler_config().accumulated_recompile_limit;
  if (broken || function.options.graphs_made->load(std::memory_order_relaxed) >= limit) {
    lua_pop(L, 1);
    return broken ? followed_bucket(L, function, std::move(world)) : beyond_bucket(L, function, std::move(world));
  }
  report_recompile(L, function, world);
  std::shared_ptr<Bucket> bucket = make_bucket(L, function, std::move(world), function.options);
  bucket->script->set_variables(&bucket->world.variables);
  set_anchors(L, function, *bucket);
  function.buckets.emplace(bucket->world.key, bucket);
  return bucket;
}

}  // namespace

std::shared_ptr<Bucket> bucket_for(lua_State* L, CompiledFunction& function, const std::string& arguments) {
  if (function.generation != generation.load(std::memory_order_relaxed)) forget_graphs(L, function);
  const int last_argument = lua_gettop(L);
  if (function.last && function.last_epoch == context(L).epoch && function.last_arguments == arguments &&
      function.last_variables == variables_among(L, last_argument, function.last->world.variables))
    return function.last;
  World world;
  read_world(L, function, arguments, world);
  std::shared_ptr<Bucket> bucket;
  auto found = function.buckets.find(world.key);
  if (found != function.buckets.end() && !is_alive(L, function, *found->second)) {
    drop(L, function, found);
    found = function.buckets.end();
  }
  if (found != function.buckets.end()) {
    lua_pop(L, 1);
    bucket = found->second;
    bucket->world.variables = std::move(world.variables);
  } else {
    world.arguments = argument_texts(L, last_argument);
    bucket = new_bucket_for(L, function, std::move(world));
  }
  if (function.last && function.last != bucket) function.last->world.variables = {};  // read anew, should it come again
  function.last = bucket;
  function.last_epoch = context(L).epoch;
  function.last_arguments = arguments;
  function.last_variables = variables_among(L, last_argument, bucket->world.variables);
  return bucket;
}

void find_without_allowed_writes(lua_State* L, CompiledFunction& function, const std::string& arguments,
                                 const std::shared_ptr<Bucket>& bucket) {
  const auto place = std::find_if(function.buckets.begin(), function.buckets.end(),
                                  [&](const auto& known) { return known.second == bucket; });
  if (place == function.buckets.end()) return;  // it serves all worlds
  take_out(L, function, place);
  const Variables before = std::move(bucket->world.variables);
  read_world(L, function, arguments, bucket->world);
  const Variables& after = bucket->world.variables;
  std::vector<size_t> now(before.tensors.size(), after.tensors.size());
  for (const auto& [userdata, number] : before.numbers)
    if (const auto found = after.numbers.find(userdata); found != after.numbers.end()) now[number] = found->second;
  function.last.reset();
  if (!bucket->compiled->renumber_variables(now)) return lua_pop(L, 1);
  set_anchors(L, function, *bucket);
  if (const auto other = function.buckets.find(bucket->world.key); other != function.buckets.end())
    drop(L, function, other);  // with the key that names it
  function.buckets.emplace(bucket->world.key, bucket);
}

bool is_tensor_argument(const World& world, size_t i) {
  return world.arguments[i] == tensor_text || world.arguments[i].rfind(same_tensor_text, 0) == 0;
}

std::vector<const Bucket*> buckets_in_order(const CompiledFunction& function) {
  std::vector<const Bucket*> buckets;
  for (const auto& [key, bucket] : function.buckets) buckets.push_back(bucket.get());
  std::sort(buckets.begin(), buckets.end(), [](const Bucket* a, const Bucket* b) { return a->number < b->number; });
  return buckets;
}

std::shared_ptr<capture::TraceTree> new_traces(const CompiledFunction& function) {
  return std::make_shared<capture::TraceTree>(function.name,
                                              function.options.clock->timed(function.options.compile_with));
}

CacheStatistics statistics_of(const CompiledFunction& function) {
  CacheStatistics all;
  for (const auto& [key, bucket] : function.buckets) {
    const CacheStatistics one = bucket->compiled->statistics();
    all.graphs += one.graphs;
    all.retired += one.retired;
    all.bytes += one.bytes + key.size();
  }
  capture::add_segments(all, function.options.traces->graphs);
  return all;
}

void push_statistics(lua_State* L, const CacheStatistics& statistics) {
  lua_createtable(L, 0, 4);
  for (const auto& [name, count] : {std::pair("graphs", statistics.graphs), std::pair("segments", statistics.segments),
                                    std::pair("retired", statistics.retired), std::pair("bytes", statistics.bytes)}) {
    lua_pushinteger(L, static_cast<lua_Integer>(count));
    lua_setfield(L, -2, name);
  }
}

void finish_compiling(const CompiledFunction& function) {
  for (const auto& [key, bucket] : function.buckets)
    for (const capture::Entry* entry : bucket->compiled->entries()) entry->executable->finish_compiling();
  function.options.traces->finish_compiling();
}

void forget_all_graphs() noexcept { generation.fetch_add(1, std::memory_order_relaxed); }

}  // namespace triage::lua
