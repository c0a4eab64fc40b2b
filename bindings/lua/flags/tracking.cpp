#include "bindings/lua/flags/flags_library.h"
#include "bindings/lua/flags/location_tree.h"
#include "bindings/lua/flags/script_modules.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/location/assign.h"
#include "runtime/location/glob.h"

#include <triage/error.h>
#include <triage/location.h>
#include <triage/tracked.h>

#include <algorithm>
#include <cstring>
#include <string>

/// What `tracked` and `triage.instrument` of the prelude need from C++.
namespace triage::lua {
namespace {

/// The options at stack indices `prefix` and `tree`.
TrackOptions read_options(lua_State* L, int prefix, int tree, const char* who) {
  TrackOptions options;
  if (!lua_isnoneornil(L, prefix)) {
    if (lua_type(L, prefix) != LUA_TSTRING || lua_rawlen(L, prefix) == 0)
      throw InputError(std::string(who) + ": expected a path such as \"teacher\" as prefix, got " +
                       describe(L, prefix));
    options.prefix = lua_tostring(L, prefix);
  }
  if (!lua_isnoneornil(L, tree)) {
    options.tree = test_location_tree(L, tree);
    if (!options.tree)
      throw InputError(std::string(who) + ": expected a LocationTree as tree, got " + describe(L, tree));
  }
  return options;
}

/// core.assign_locations(who, paths, holds, prefix, tree) -> for each path {path, location, id}, or false where the
/// module holds no parameters.
int assign(lua_State* L) {
  const char* who = luaL_checkstring(L, 1);
  const TrackOptions options = read_options(L, 4, 5, who);
  std::vector<ListedModule> modules;
  const auto count = static_cast<lua_Integer>(lua_rawlen(L, 2));
  for (lua_Integer i = 1; i <= count; ++i) {
    lua_rawgeti(L, 2, i);
    lua_rawgeti(L, 3, i);
    modules.push_back({luaL_checkstring(L, -2), lua_toboolean(L, -1) != 0});
    lua_pop(L, 2);
  }
  charge(L, 0, 0, 20 * static_cast<uint64_t>(count));
  const Context& own = context(L);
  for (const ListedModule& module : modules) check_location_name(own, options.prefix + '.' + module.path);
  const std::vector<TrackedModule> assigned =
      assign_locations(modules, options, free_location_names(own), own.locations.get());
  lua_createtable(L, static_cast<int>(count), 0);
  for (size_t i = 0; i < assigned.size(); ++i) {
    if (assigned[i].path.empty()) {
      lua_pushboolean(L, false);
    } else {
      lua_createtable(L, 0, 3);
      lua_pushstring(L, assigned[i].path.c_str());
      lua_setfield(L, -2, "path");
      lua_pushstring(L, assigned[i].location.c_str());
      lua_setfield(L, -2, "location");
      lua_pushinteger(L, assigned[i].id);
      lua_setfield(L, -2, "id");
    }
    lua_rawseti(L, -2, static_cast<lua_Integer>(i + 1));
  }
  return 1;
}

/// core.track_script(module, prefix, tree): a TorchScript module.
int track_script(lua_State* L) {
  const torch::jit::Module* module = test_script_module(L, 1);
  if (!module) throw InputError("tracked: expected a module, got " + describe(L, 1));
  tracked(*module, read_options(L, 2, 3, "tracked"));
  return 0;
}

int is_script_module(lua_State* L) {
  lua_pushboolean(L, test_script_module(L, 1) != nullptr);
  return 1;
}

/// core.swap_call(value, function) -> what calling values of its kind did before; nil, and nothing changed, where it
/// cannot be called. The metatable stays the same table, so that whoever knows values by it still does.
int swap_call(lua_State* L) {
  lua_settop(L, 2);
  if (!lua_getmetatable(L, 1)) return 0;
  lua_pushliteral(L, "__call");
  lua_rawget(L, 3);
  if (lua_isnil(L, -1)) return 1;
  lua_pushliteral(L, "__call");
  lua_pushvalue(L, 2);
  lua_rawset(L, 3);
  return 1;
}

/// core.metatable_of(value): its identity tells values of one class.
int metatable_of(lua_State* L) { return lua_getmetatable(L, 1) ? 1 : 0; }

/// core.rows_match(a, b): have both as many samples? Asked without telling the recorder, for what is decided here holds
/// at run time too: flags of another number of samples are an error of the operator.
int rows_match(lua_State* L) {
  const at::Tensor &a = check_tensor(L, 1), &b = check_tensor(L, 2);
  lua_pushboolean(L, a.dim() > 0 && b.dim() > 0 && a.size(0) == b.size(0));
  return 1;
}

int has_samples(lua_State* L) {
  const at::Tensor* tensor = test_tensor(L, 1);
  lua_pushboolean(L, tensor && tensor->dim() > 0);
  return 1;
}

int is_floating(lua_State* L) {
  const at::Tensor* tensor = test_tensor(L, 1);
  lua_pushboolean(L, tensor && (tensor->is_floating_point() || tensor->is_complex()));
  return 1;
}

/// core.matches_glob(pattern, path)
int glob(lua_State* L) {
  const char *pattern = luaL_checkstring(L, 1), *path = luaL_checkstring(L, 2);
  charge(L, 0, 0, std::strlen(pattern) + std::strlen(path));
  lua_pushboolean(L, matches_glob(pattern, path));
  return 1;
}

/// core.break_graph(what, hint), core.break_registry(what, hint), core.break_outside_write(what, hint)
template <capture::Break kind>
int break_capture(lua_State* L) {
  capture::graph_break(kind, luaL_checkstring(L, 1), luaL_checkstring(L, 2));
  return 0;
}

}  // namespace

void add_tracking(lua_State* L) {
  static const luaL_Reg functions[] = {{"assign_locations", guarded<assign>},
                                       {"track_script", guarded<track_script>},
                                       {"is_script_module", guarded<is_script_module>},
                                       {"swap_call", guarded<swap_call>},
                                       {"metatable_of", guarded<metatable_of>},
                                       {"rows_match", guarded<rows_match>},
                                       {"has_samples", guarded<has_samples>},
                                       {"is_floating", guarded<is_floating>},
                                       {"matches_glob", guarded<glob>},
                                       {"break_graph", guarded<break_capture<capture::Break::training_step>>},
                                       {"break_registry", guarded<break_capture<capture::Break::registry>>},
                                       {"break_outside_write", guarded<break_capture<capture::Break::outside_write>>},
                                       {nullptr, nullptr}};
  luaL_setfuncs(L, functions, 0);
}

}  // namespace triage::lua
