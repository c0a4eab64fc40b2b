#include "bindings/lua/flags/value_statistics.h"

#include "bindings/lua/flags/flags_library.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/state/table_fields.h"
#include "bindings/lua/state/userdata.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/replay/trace_replayer.h"

#include <triage/error.h>

#include <memory>
#include <optional>
#include <string>

/// Counts of the values that modules in Lua give, for scripts/prelude/instrument.lua.
namespace triage::lua {
namespace {

const char collector_key = 0;  // their addresses are the keys of the metatables
const char batch_key = 0;
const char* const statistics_type = "triage.value_statistics";

using Batch = std::unique_ptr<ValueCollector::Batch>;

template <typename T>
T& check_counter(lua_State* L, const void* key) {
  T* const found = test_userdata<T>(L, 1, key);
  if (!found) throw InputError("counting values: expected a collector of triage.instrument");
  return *found;
}

/// core.value_collector()
int value_collector(lua_State* L) {
  push_userdata(L, ValueCollector(), &collector_key);
  return 1;
}

/// core.value_batch(collector)
int value_batch(lua_State* L) {
  const auto& collector = check_counter<ValueCollector>(L, &collector_key);
  push_userdata(L, std::make_unique<ValueCollector::Batch>(collector), &batch_key);
  return 1;
}

/// core.add_values(batch, path, tensor) -> whether a value may be NaN or Inf
int add_values(lua_State* L) {
  const auto& batch = check_counter<Batch>(L, &batch_key);
  size_t length = 0;
  const char* const path = luaL_checklstring(L, 2, &length);
  const at::Tensor& tensor = check_tensor(L, 3);
  lua_pushboolean(L, tensor.layout() != at::kStrided || batch->add({path, length}, tensor));
  return 1;
}

/// core.value_statistics(collector)
int value_statistics(lua_State* L) {
  push_value_statistics(L, check_counter<ValueCollector>(L, &collector_key).statistics());
  return 1;
}

/// core.reset_values(collector)
int reset_values(lua_State* L) {
  check_counter<ValueCollector>(L, &collector_key).reset();
  return 0;
}

/// core.run_uncaptured(what, fn, ...) -> what fn returns, run as a script because `what` writes to what graphs do not
/// hold
int run_uncaptured(lua_State* L) {
  capture::graph_break(capture::Break::outside_write, luaL_checkstring(L, 1),
                       "Call it before or after the compiled code.");
  lua_remove(L, 1);
  const capture::NotCaptured scope(true);
  call_for_all(L, lua_gettop(L) - 1);
  return lua_gettop(L);
}

int statistics_tostring(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_pushliteral(L, "text");
  lua_rawget(L, 1);
  return 1;
}

void set_number(lua_State* L, const char* name, const std::optional<double>& number) {
  if (!number) return;
  lua_pushnumber(L, *number);
  lua_setfield(L, -2, name);
}

void push_location(lua_State* L, const ValueStatistics& one) {
  lua_createtable(L, 0, 14);
  set_text(L, "location", one.location);
  set_text(L, "dtype", one.dtype);
  set_number(L, "limit", one.limit);
  set_number(L, "min", one.minimum);
  set_number(L, "max", one.maximum);
  set_number(L, "largest", one.largest());
  set_number(L, "of_limit", one.largest() / one.limit);
  const std::pair<const char*, uint64_t> counts[] = {
      {"batches", one.batches},     {"values", one.values}, {"zeros", one.zeros}, {"near_limit", one.near_limit},
      {"saturated", one.saturated}, {"nan", one.nan},       {"inf", one.inf}};
  for (const auto& [name, count] : counts) set_integer(L, name, static_cast<lua_Integer>(count));
}

}  // namespace

void push_value_statistics(lua_State* L, const std::vector<ValueStatistics>& statistics) {
  luaL_checkstack(L, 8, "statistics of values");
  lua_createtable(L, static_cast<int>(statistics.size()), 3);
  for (size_t i = 0; i < statistics.size(); ++i) {
    push_location(L, statistics[i]);
    lua_rawseti(L, -2, static_cast<lua_Integer>(i) + 1);
  }
  set_text(L, "text", value_statistics_text(statistics));
  set_text(L, "json", value_statistics_json(statistics));
  set_text(L, "metrics", value_statistics_metrics(statistics));
  luaL_setmetatable(L, statistics_type);
}

void add_value_statistics(lua_State* L) {
  static const luaL_Reg of_collector[] = {{"__gc", free_userdata<ValueCollector, collector_key>}, {nullptr, nullptr}};
  static const luaL_Reg of_batch[] = {{"__gc", free_userdata<Batch, batch_key>}, {nullptr, nullptr}};
  make_metatable(L, &collector_key, "value collector", of_collector);
  make_metatable(L, &batch_key, "value batch", of_batch);
  luaL_newmetatable(L, statistics_type);
  lua_pushcfunction(L, guarded<statistics_tostring>);
  lua_setfield(L, -2, "__tostring");
  lua_pop(L, 1);
  static const luaL_Reg functions[] = {{"value_collector", guarded<value_collector>},
                                       {"value_batch", guarded<value_batch>},
                                       {"add_values", guarded<add_values>},
                                       {"value_statistics", guarded<value_statistics>},
                                       {"reset_values", guarded<reset_values>},
                                       {"run_uncaptured", guarded<run_uncaptured>},
                                       {nullptr, nullptr}};
  luaL_setfuncs(L, functions, 0);
}

}  // namespace triage::lua
