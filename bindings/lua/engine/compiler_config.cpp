#include "bindings/lua/engine/compiler_config.h"

#include "bindings/lua/loading/effects.h"
#include "bindings/lua/state.h"
#include "bindings/lua/tensors/overloads.h"
#include "bindings/lua/tensors/tensor.h"

#include <triage/compiler_config.h>
#include <triage/error.h>

#include <string>

namespace triage::lua {
namespace {

struct Setting {
  const char* name;
  bool CompilerConfig::*value;
};

constexpr Setting settings[] = {
    {"capture_dynamic_output_shape_ops", &CompilerConfig::capture_dynamic_output_shape_ops}};

const Setting& check_setting(lua_State* L) {
  const std::string name = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : describe(L, 2);
  std::vector<std::string> known;
  for (const Setting& setting : settings) {
    if (name == setting.name) return setting;
    known.emplace_back(setting.name);
  }
  throw InputError("triage.config: there is no setting '" + name + "'" + did_you_mean(close_words(name, known)));
}

int config_index(lua_State* L) {
  lua_pushboolean(L, get_compiler_config().*check_setting(L).value);
  return 1;
}

int config_newindex(lua_State* L) {
  const Setting& setting = check_setting(L);
  if (is_policy(L))
    throw InputError(std::string("a policy may not change `triage.config.") + setting.name +
                     "`, which holds for the process; the host sets it (set_compiler_config)");
  if (!lua_isboolean(L, 3))
    throw InputError(std::string("triage.config.") + setting.name + ": expected true or false, got " + describe(L, 3));
  break_graph(L, std::string("`triage.config.") + setting.name + "` is set while capturing",
              "Set it before the compiled function is called.");
  CompilerConfig config = get_compiler_config();
  config.*setting.value = lua_toboolean(L, 3) != 0;
  set_compiler_config(config);
  bump_epoch(L);
  return 0;
}

}  // namespace

void push_compiler_config(lua_State* L) {
  static const luaL_Reg functions[] = {
      {"__index", guarded<config_index>}, {"__newindex", guarded<config_newindex>}, {nullptr, nullptr}};
  lua_newuserdatauv(L, 0, 0);
  lua_newtable(L);
  luaL_setfuncs(L, functions, 0);
  lua_pushliteral(L, "triage.config");
  lua_setfield(L, -2, "__name");
  lua_pushliteral(L, "triage.config");
  lua_setfield(L, -2, "__metatable");
  lua_setmetatable(L, -2);
}

}  // namespace triage::lua
