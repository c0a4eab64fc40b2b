#pragma once
#include <triage/config.h>
#include <triage/flags.h>

#include <lua.hpp>

#include <optional>
#include <string>
#include <string_view>

/// What the Lua prelude (scripts/prelude) needs from C++: checked arguments, the configuration, locations, inspection
/// of flags, and what control flow must ask without telling the recorder. All of it goes into the table `core` that
/// prelude chunks are given; scripts never see that table itself.
namespace triage::lua {

struct Context;

/// The functions of the prelude. After open_torch, before open_prelude.
void open_flags(lua_State* L);

/// The configuration at `index`, the one in force where there is nil; throws InputError for anything else. Of another
/// value than an ErrorConfig: nothing.
ErrorConfig error_config(lua_State* L, int index);
std::optional<ErrorConfig> test_error_config(lua_State* L, int index);

/// AccumulationConfig{...}, or a table of its fields, at `index`. Throws ConfigError.
AccumulationConfig check_accumulation(lua_State* L, int index);

/// The table of options at `index` of a function that reads flags: {config = ..., codes = {MISSING = 4}}. Without
/// `codes`, the names that the script's policy has. Throws InputError.
InspectOptions inspect_options(lua_State* L, int index, const char* operation);
/// The same where only `config` is an option.
std::optional<ErrorConfig> config_option(lua_State* L, int index, const char* operation);

/// How many locations a policy may still be the first to name: ids are shared by all of them. Refuses a name that is
/// too long.
int64_t free_location_names(const Context& context);
void check_location_name(const Context& context, std::string_view path);

/// Adds to the table on top of the stack; each of the parts of this library.
void add_argument_checks(lua_State* L);
void add_config(lua_State* L);
void add_locations(lua_State* L);
void add_location_trees(lua_State* L);
void add_tracking(lua_State* L);
void add_instrument(lua_State* L);
void add_value_statistics(lua_State* L);
void add_inspection(lua_State* L);
void add_control_flow(lua_State* L);

}  // namespace triage::lua
