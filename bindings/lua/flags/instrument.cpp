#include "bindings/lua/flags/flags_library.h"
#include "bindings/lua/flags/location_tree.h"
#include "bindings/lua/flags/script_modules.h"
#include "bindings/lua/flags/value_statistics.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/recording/recorder.h"

#include <triage/error.h>
#include <triage/instrument.h>

#include <string>
#include <utility>

/// Instrumented TorchScript modules, for scripts/prelude/instrument.lua.
namespace triage::lua {
namespace {

const char* const instrumented_type = "triage.instrumented";

Instrumented& check_instrumented(lua_State* L) {
  auto** holder = static_cast<Instrumented**>(luaL_checkudata(L, 1, instrumented_type));
  if (!*holder) throw InputError("this instrumented module was closed");
  return **holder;
}

int instrumented_gc(lua_State* L) {
  delete std::exchange(*static_cast<Instrumented**>(luaL_checkudata(L, 1, instrumented_type)), nullptr);
  return 0;
}

std::vector<Benign> read_benign(lua_State* L, int list) {
  std::vector<Benign> benign;
  const auto count = static_cast<lua_Integer>(lua_rawlen(L, list));
  for (lua_Integer i = 1; i <= count; ++i) {
    lua_rawgeti(L, list, i);
    lua_getfield(L, -1, "location");
    lua_getfield(L, -2, "code");
    Benign& entry = benign.emplace_back();
    entry.location = luaL_checkstring(L, -2);
    if (!lua_isnil(L, -1)) entry.code = static_cast<Code>(luaL_checkinteger(L, -1));
    lua_pop(L, 3);
  }
  return benign;
}

void push_paths(lua_State* L, const std::vector<std::string>& paths) {
  lua_createtable(L, static_cast<int>(paths.size()), 0);
  for (size_t i = 0; i < paths.size(); ++i) {
    lua_pushstring(L, paths[i].c_str());
    lua_rawseti(L, -2, static_cast<lua_Integer>(i + 1));
  }
}

/// core.instrument_script(module, {prefix, tree, every, statistics, benign, config}) -> userdata, paths, unseen paths
int instrument_script(lua_State* L) {
  const torch::jit::Module* module = test_script_module(L, 1);
  if (!module) throw InputError("triage.instrument: expected a module, got " + describe(L, 1));
  InstrumentOptions options;
  if (lua_getfield(L, 2, "prefix") == LUA_TSTRING) options.track.prefix = lua_tostring(L, -1);
  lua_getfield(L, 2, "tree");
  options.track.tree = test_location_tree(L, -1);
  lua_getfield(L, 2, "every");
  options.every = luaL_checkinteger(L, -1);
  lua_getfield(L, 2, "statistics");
  options.statistics = lua_toboolean(L, -1) != 0;
  lua_getfield(L, 2, "config");
  if (const auto config = test_error_config(L, -1)) options.config = *config;
  lua_getfield(L, 2, "benign");
  options.benign = read_benign(L, lua_gettop(L));
  auto instrumented = std::make_unique<Instrumented>(instrument(*module, options));
  std::vector<std::string> paths;
  for (const TrackedModule& location : instrumented->locations()) paths.push_back(location.path);
  const std::vector<std::string> unseen = instrumented->unseen();
  *static_cast<Instrumented**>(lua_newuserdatauv(L, sizeof(Instrumented*), 0)) = instrumented.release();
  luaL_setmetatable(L, instrumented_type);
  push_paths(L, paths);
  push_paths(L, unseen);
  return 3;
}

/// core.call_instrumented_script(userdata, ...) -> checked, unlooked paths, then the model's results (a tuple as
/// several) and the flags
int call_instrumented_script(lua_State* L) {
  const Instrumented& instrumented = check_instrumented(L);
  capture::graph_break(capture::Break::opaque_module, "a TorchScript module runs operators that capture does not see",
                       "Call it before or after the compiled code.");
  const Instrumented::Result result = instrumented(read_script_arguments(L, 2));
  lua_pushboolean(L, result.checked);
  push_paths(L, result.unlooked);
  const int count = 3 + push_script_results(L, result.output);
  push_tensor(L, result.flags);
  return count;
}

/// core.instrumented_statistics(userdata)
int instrumented_statistics(lua_State* L) {
  push_value_statistics(L, check_instrumented(L).statistics());
  return 1;
}

/// core.reset_instrumented(userdata)
int reset_instrumented(lua_State* L) {
  check_instrumented(L).reset_statistics();
  return 0;
}

int call_opaque(lua_State* L) {
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  call_for_all(L, lua_gettop(L) - 1);
  return lua_gettop(L);
}

/// core.opaque(function) -> one that does the same, and whose upvalues are no part of what compiled code depends on.
int opaque(lua_State* L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  lua_settop(L, 1);
  lua_pushcclosure(L, guarded<call_opaque>, 1);
  return 1;
}

}  // namespace

void add_instrument(lua_State* L) {
  luaL_newmetatable(L, instrumented_type);
  lua_pushcfunction(L, guarded<instrumented_gc>);
  lua_setfield(L, -2, "__gc");
  lua_pushliteral(L, "instrumented module");
  lua_setfield(L, -2, "__metatable");
  lua_pop(L, 1);
  static const luaL_Reg functions[] = {{"instrument_script", guarded<instrument_script>},
                                       {"call_instrumented_script", guarded<call_instrumented_script>},
                                       {"instrumented_statistics", guarded<instrumented_statistics>},
                                       {"reset_instrumented", guarded<reset_instrumented>},
                                       {"opaque", guarded<opaque>},
                                       {nullptr, nullptr}};
  luaL_setfuncs(L, functions, 0);
}

}  // namespace triage::lua
