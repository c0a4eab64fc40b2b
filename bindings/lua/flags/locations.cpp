#include "bindings/lua/flags/flags_library.h"
#include "bindings/lua/flags/script_modules.h"
#include "bindings/lua/state/effects.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/number.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/location/assign.h"
#include "runtime/location/owner.h"

#include <triage/error.h>
#include <triage/location.h>
#include <triage/tracked.h>

#include <algorithm>
#include <optional>
#include <string>

/// Locations as scripts give them, and the table `ErrorLocation`.
namespace triage::lua {
namespace {

std::string check_path(lua_State* L, int index, const char* who) {
  if (lua_type(L, index) != LUA_TSTRING)
    throw InputError(std::string(who) + ": expected a path such as \"encoder.2\", got " + describe(L, index));
  return lua_tostring(L, index);
}

constexpr int64_t most_names = 256;  // of one policy: ids are shared by all of them
constexpr size_t longest_name = 1000;

/// The id of a path, registered on first use. A policy has a share of the ids.
int64_t id_of_path(lua_State* L, const std::string& path) {
  const Context& own = context(L);
  check_location_name(own, path);
  if (!own.locations) return ErrorLocation::register_path(path);
  if (free_location_names(own) == 0 && !ErrorLocation::is_registered(path))
    throw LimitError("a policy may name at most " + std::to_string(most_names) +
                     " locations, and all policies share 1,023; '" + path + "' is one too many");
  return own.locations->register_path(path);
}

/// An id becomes a number of the script, which may store it where nobody sees that it is one.
void keep_locations(lua_State* L) {
  if (const auto& locations = context(L).locations) locations->keep();
}

int64_t check_id(lua_State* L, int index, const std::string& who) {
  int is_integer = 0;
  specialize_number(L, index);
  const lua_Integer id = lua_type(L, index) == LUA_TNUMBER ? lua_tointegerx(L, index, &is_integer) : -1;
  if (!is_integer || id < 0 || id > ErrorLocation::MAX_LOCATION_ID)
    throw InputError(who + ": expected a location id (0..1023), got " + describe(L, index));
  return id;
}

std::optional<std::string> text_field(lua_State* L, int index, const char* field) {
  std::optional<std::string> text;
  if (lua_getfield(L, index, field) == LUA_TSTRING) text = lua_tostring(L, -1);
  lua_pop(L, 1);
  return text;
}

/// The id of what `tracked` wrote into a module: the one it gave, as long as that is the id of the module's location.
/// After ErrorLocation.reset() it may be another's, and the location gets a new one. A table that only has a path is
/// that path.
std::optional<int64_t> id_of_tracked(lua_State* L, int index) {
  const auto location = text_field(L, index, "_fx_location");
  if (location) {
    const bool has_id = lua_getfield(L, index, "_fx_id") == LUA_TNUMBER;
    const lua_Integer id = lua_tointeger(L, -1);
    lua_pop(L, 1);
    if (has_id && ErrorLocation::path(id) == *location && !context(L).locations) return id;
    return id_of_path(L, *location);
  }
  const auto path = text_field(L, index, "_fx_path");
  return path ? std::optional(id_of_path(L, *path)) : std::nullopt;
}

/// A module: a tracked one names its path, any other is Unknown.
int64_t location_of_module(lua_State* L, int index, const std::string& who) {
  if (const torch::jit::Module* module = test_script_module(L, index)) return location_of(*module).id;
  const bool is_module = lua_getmetatable(L, index) != 0;
  if (is_module) lua_pop(L, 1);
  if (const auto id = id_of_tracked(L, index)) return *id;
  if (!is_module)
    throw InputError(
        who + ": expected a location (an id, a path, a tracked module or nil), got a table without `_fx_path`; " +
        "options come after the location, which may be nil");
  warn_of_untracked_module();
  return ErrorLocation::UNKNOWN;
}

/// core.location(value, operation) -> id
int resolve_location(lua_State* L) {
  const char* name = lua_tostring(L, 2);
  const std::string who = name ? name : "location";
  lua_settop(L, 2);
  specialize_number(L, 1);
  int64_t id = ErrorLocation::UNKNOWN;
  switch (lua_type(L, 1)) {
    case LUA_TNONE:
    case LUA_TNIL:
      break;
    case LUA_TNUMBER:
      id = check_id(L, 1, who);
      break;
    case LUA_TSTRING:
      id = id_of_path(L, lua_tostring(L, 1));
      break;
    case LUA_TTABLE:
      id = location_of_module(L, 1, who);
      break;
    default:
      if (lua_type(L, 1) != LUA_TUSERDATA || test_tensor(L, 1))
        throw InputError(who + ": expected a location (an id, a path, a tracked module or nil), got " + describe(L, 1));
      id = location_of_module(L, 1, who);
  }
  lua_pushinteger(L, id);
  return 1;
}

/// What is registered is not the same for ever.
void read_registry() {
  capture::graph_break(capture::Break::registry, "`ErrorLocation` reads the registry of locations",
                       "Read it outside of the compiled code.");
}

int location_register(lua_State* L) {
  const std::string path = check_path(L, 1, "ErrorLocation.register");
  if (!ErrorLocation::is_registered(path)) refuse_in_selection(L, "`ErrorLocation.register` of a new path");
  read_registry();
  keep_locations(L);
  lua_pushinteger(L, id_of_path(L, path));
  return 1;
}

int location_get(lua_State* L) {
  read_registry();
  const std::string path = check_path(L, 1, "ErrorLocation.get");
  keep_locations(L);
  const bool known = ErrorLocation::is_registered(path);
  lua_pushinteger(L, known ? id_of_path(L, path) : ErrorLocation::UNKNOWN);
  return 1;
}

int location_name(lua_State* L) {
  read_registry();
  lua_pushstring(L, ErrorLocation::name(check_id(L, 1, "ErrorLocation.name")).c_str());
  return 1;
}

int location_path(lua_State* L) {
  read_registry();
  lua_pushstring(L, ErrorLocation::path(check_id(L, 1, "ErrorLocation.path")).c_str());
  return 1;
}

int location_is_registered(lua_State* L) {
  read_registry();
  lua_pushboolean(L, ErrorLocation::is_registered(check_path(L, 1, "ErrorLocation.is_registered")));
  return 1;
}

int location_count(lua_State* L) {
  read_registry();
  lua_pushinteger(L, ErrorLocation::count());
  return 1;
}

int location_reset(lua_State* L) {
  refuse_in_selection(L, "ErrorLocation.reset()");
  read_registry();
  ErrorLocation::reset();
  return 0;
}

int location_get_all_paths(lua_State* L) {
  read_registry();
  keep_locations(L);
  const auto& own = context(L).locations;
  lua_newtable(L);
  for (const auto& [path, id] : own ? own->hold_all() : ErrorLocation::get_all_paths()) {
    lua_pushinteger(L, id);
    lua_setfield(L, -2, path.c_str());
  }
  return 1;
}

}  // namespace

int64_t free_location_names(const Context& context) {
  return context.locations ? std::max<int64_t>(most_names - context.locations->taken(), 0)
                           : ErrorLocation::MAX_LOCATION_ID + 1;
}

void check_location_name(const Context& context, std::string_view path) {
  if (context.sandboxed && path.size() > longest_name)
    throw LimitError("a policy may name locations with at most " + std::to_string(longest_name) + " bytes; got " +
                     std::to_string(path.size()));
}

void add_locations(lua_State* L) {
  lua_pushcfunction(L, guarded<resolve_location>);
  lua_setfield(L, -2, "location");
  static const LimitedFunction functions[] = {{"register", guarded<location_register>, 1},
                                              {"get", guarded<location_get>, 1},
                                              {"name", guarded<location_name>, 1},
                                              {"path", guarded<location_path>, 1},
                                              {"is_registered", guarded<location_is_registered>, 1},
                                              {"count", guarded<location_count>, 0},
                                              {"get_all_paths", guarded<location_get_all_paths>, 0}};
  lua_newtable(L);
  set_limited(L, "ErrorLocation.", functions);
  lua_pushinteger(L, ErrorLocation::UNKNOWN);
  lua_setfield(L, -2, "UNKNOWN");
  if (!context(L).sandboxed) {  // a policy must not rename what other policies record
    static const LimitedFunction reset[] = {{"reset", guarded<location_reset>, 0}};
    set_limited(L, "ErrorLocation.", reset);
  }
  lua_setfield(L, -2, "locations");
}

}  // namespace triage::lua
