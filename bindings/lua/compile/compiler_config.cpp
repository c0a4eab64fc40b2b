#include "bindings/lua/compile/compiler_config.h"

#include "bindings/lua/compile/closures/closure_environments.h"
#include "bindings/lua/state/effects.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/describe.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/replay/trace_replayer.h"
#include "runtime/capture/sizes/marks.h"
#include "runtime/messages/logs/artefacts.h"
#include "runtime/messages/logs/log_file.h"
#include "runtime/messages/profiling/phase_times.h"

#include <triage/compiler_config.h>
#include <triage/diagnostics.h>
#include <triage/error.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace triage::lua {
namespace {

struct Setting {
  const char* name;
  bool CompilerConfig::*flag;
  int64_t CompilerConfig::*limit;
};

constexpr Setting settings[] = {
    {"capture_dynamic_output_shape_ops", &CompilerConfig::capture_dynamic_output_shape_ops, nullptr},
    {"capture_scalar_outputs", &CompilerConfig::capture_scalar_outputs, nullptr},
    {"fail_on_recompile_limit_hit", &CompilerConfig::fail_on_recompile_limit_hit, nullptr},
    {"recompile_limit", nullptr, &CompilerConfig::recompile_limit},
    {"accumulated_recompile_limit", nullptr, &CompilerConfig::accumulated_recompile_limit}};

/// Settings of diagnosis: "" is false in Lua.
struct TextSetting {
  const char* name;
  std::string Diagnostics::*text;
};
constexpr TextSetting text_settings[] = {
    {"debug_dir", &Diagnostics::debug_dir},           {"repro_after", &Diagnostics::repro_after},
    {"repro_backends", &Diagnostics::repro_backends}, {"repro_dir", &Diagnostics::repro_dir},
    {"trace_dir", &Diagnostics::trace_dir},           {"replay_dir", &Diagnostics::replay_dir},
    {"replay_mask", &Diagnostics::replay_mask}};
constexpr const char* level_setting = "repro_level";

/// Those that are on or off.
struct SwitchSetting {
  const char* name;
  bool Diagnostics::*value;
};
constexpr SwitchSetting switch_settings[] = {{"verbose", &Diagnostics::verbose},
                                             {"profiler_spans", &Diagnostics::profiler_spans}};

const SwitchSetting* switch_setting(const std::string& name) {
  for (const SwitchSetting& setting : switch_settings)
    if (name == setting.name) return &setting;
  return nullptr;
}

const TextSetting* text_setting(const std::string& name) {
  for (const TextSetting& setting : text_settings)
    if (name == setting.name) return &setting;
  return nullptr;
}

bool is_diagnosis_setting(const std::string& name) {
  return text_setting(name) || switch_setting(name) || name == level_setting;
}

std::string setting_name(lua_State* L) { return lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : describe(L, 2); }

/// Those of `known` that begin with the same word: torch.compile has `replay_record_enabled` where there is
/// `replay_dir` here.
std::vector<std::string> named_like(const std::string& name, const std::vector<std::string>& known) {
  constexpr size_t most = 3, shortest = 4;
  const std::string word = name.substr(0, std::min(name.find('_'), name.size()));
  std::vector<std::string> like;
  for (const std::string& one : known)
    if (word.size() >= shortest && one.rfind(word + "_", 0) == 0 && like.size() < most) like.push_back(one);
  return like;
}

const Setting& check_setting(lua_State* L) {
  const std::string name = setting_name(L);
  std::vector<std::string> known = {level_setting};
  for (const SwitchSetting& setting : switch_settings) known.emplace_back(setting.name);
  for (const TextSetting& setting : text_settings) known.emplace_back(setting.name);
  for (const Setting& setting : settings) {
    if (name == setting.name) return setting;
    known.emplace_back(setting.name);
  }
  std::vector<std::string> close = close_words(name, known);
  if (close.empty()) close = named_like(name, known);
  throw InputError("triage.config: there is no setting '" + name + "'" + did_you_mean(close));
}

/// Pushes a setting of diagnosis; false where there is none of that name. No graph depends on them.
bool push_diagnosis_setting(lua_State* L, const std::string& name) {
  if (!is_diagnosis_setting(name)) return false;
  if (is_policy(L)) throw InputError("triage.config." + name + ": a policy may not read what its host writes to files");
  const TextSetting* const text = text_setting(name);
  const Diagnostics diagnostics = get_diagnostics();
  if (const SwitchSetting* const setting = switch_setting(name))
    lua_pushboolean(L, diagnostics.*(setting->value));
  else if (!text)
    lua_pushinteger(L, diagnostics.repro_level);
  else if (const std::string& value = diagnostics.*(text->text); value.empty())
    lua_pushboolean(L, false);
  else
    lua_pushlstring(L, value.data(), value.size());
  return true;
}

/// Sets one; false where there is none of that name.
bool set_diagnosis_setting(lua_State* L, const std::string& name) {
  if (!is_diagnosis_setting(name)) return false;
  const TextSetting* const text = text_setting(name);
  const std::string full = "triage.config." + name;
  if (is_policy(L)) throw InputError(full + ": a policy may not set where files go; the host does (set_diagnostics)");
  refuse_in_selection(L, "a write to `" + full + "`");
  Diagnostics diagnostics = get_diagnostics();
  if (const SwitchSetting* const setting = switch_setting(name)) {
    if (!lua_isboolean(L, 3)) throw InputError(full + ": expected true or false, got " + describe(L, 3));
    diagnostics.*(setting->value) = lua_toboolean(L, 3) != 0;
  } else if (!text) {
    if (!lua_isinteger(L, 3)) throw InputError(full + ": expected an integer from 1 to 4, got " + describe(L, 3));
    diagnostics.repro_level = static_cast<int>(std::clamp<lua_Integer>(lua_tointeger(L, 3), 0, 5));
  } else if (lua_type(L, 3) == LUA_TSTRING) {
    diagnostics.*(text->text) = lua_tostring(L, 3);
  } else if (lua_isboolean(L, 3) && !lua_toboolean(L, 3)) {
    (diagnostics.*(text->text)).clear();
  } else {
    throw InputError(full + ": expected a string or false, got " + describe(L, 3));
  }
  set_diagnostics(diagnostics);
  return true;
}

int config_index(lua_State* L) {
  if (push_diagnosis_setting(L, setting_name(L))) return 1;
  const Setting& setting = check_setting(L);
  break_graph(L, capture::Break::mode, std::string("`triage.config.") + setting.name + "` is read while capturing",
              "Read it before the compiled function is called, and pass its value.");
  const CompilerConfig config = get_compiler_config();
  if (setting.flag)
    lua_pushboolean(L, config.*setting.flag);
  else
    lua_pushinteger(L, config.*setting.limit);
  return 1;
}

int config_newindex(lua_State* L) {
  if (set_diagnosis_setting(L, setting_name(L))) return 0;
  const Setting& setting = check_setting(L);
  const std::string name = std::string("triage.config.") + setting.name;
  if (is_policy(L))
    throw InputError("a policy may not change `" + name +
                     "`, which is a setting of the process; the host sets it with set_compiler_config");
  CompilerConfig config = get_compiler_config();
  if (setting.flag) {
    if (!lua_isboolean(L, 3)) throw InputError(name + ": expected true or false, got " + describe(L, 3));
    config.*setting.flag = lua_toboolean(L, 3) != 0;
  } else {
    if (!lua_isinteger(L, 3) || lua_tointeger(L, 3) < 1)
      throw InputError(name + ": expected an integer of at least 1, got " + describe(L, 3));
    config.*setting.limit = lua_tointeger(L, 3);
  }
  refuse_in_selection(L, "a write to `" + name + "`");
  break_graph(L, capture::Break::mode, "`" + name + "` is set while capturing",
              "Set it before the compiled function is called.");
  set_compiler_config(config);
  bump_epoch(L);
  return 0;
}

/// triage.set_stance(name)
int lua_set_stance(lua_State* L) {
  const Stance stance = on_behalf_of("triage.set_stance", [&] {
    return stance_from(text_argument(L, {1, "triage.set_stance", "name"}));
  });
  if (capture::Recorder::current() || capture::TraceReplayer::current())
    throw InputError(
        "triage.set_stance: captured code cannot change the stance; set it before the call of the compiled function");
  refuse_in_selection(L, "`triage.set_stance`");
  set_stance(stance);
  return 0;
}

/// triage.reset(): compiled functions capture again, and count from 0; marks and compile_times are gone.
int reset(lua_State* L) {
  if (capture::Recorder::current() || capture::TraceReplayer::current())
    throw InputError("triage.reset: captured code cannot drop captured graphs; call it outside of the compiled code");
  refuse_in_selection(L, "`triage.reset`");
  forget_all_graphs();
  capture::forget_marks();
  messages::forget_phase_times();
  bump_epoch(L);
  return 0;
}

int lua_get_stance(lua_State* L) {
  break_graph(L, capture::Break::mode, "`triage.get_stance` is read while capturing",
              "Read it before the compiled function is called, and pass its value.");
  lua_pushstring(L, stance_name(get_stance()));
  return 1;
}

messages::Detail detail_at(lua_State* L, const messages::Logs& logs, const std::string& name) {
  messages::Logs(logs).apply(name, messages::Detail::off);  // is there such a log?
  if (lua_isboolean(L, -1)) return lua_toboolean(L, -1) ? messages::Detail::on : messages::Detail::off;
  const std::string text = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
  if (text == "+") return messages::Detail::more;
  if (text == "-") return messages::Detail::off;
  throw InputError("triage.set_logs: " + name + ": expected true, false, \"+\" (more) or \"-\", got " +
                   describe(L, -1));
}

/// "help" goes where prints go.
void apply_logs(lua_State* L, messages::Logs& logs, const std::string& words) {
  if (words != "help") return logs.apply_list(words);
  const std::string help = messages::artefacts_help();
  lua_getglobal(L, "print");
  lua_pushlstring(L, help.data(), help.size() - 1);
  lua_call(L, 1, 0);
}

/// The settings that are no logs: a string, or false for none. Nothing where the table has no such field.
std::optional<std::string> setting_of(lua_State* L, const char* name) {
  lua_getfield(L, 1, name);
  std::optional<std::string> text;
  if (lua_type(L, -1) == LUA_TSTRING)
    text = lua_tostring(L, -1);
  else if (lua_isboolean(L, -1) && !lua_toboolean(L, -1))
    text.emplace();
  else if (!lua_isnil(L, -1))
    throw InputError(std::string("triage.set_logs: ") + name + ": expected a string or false, got " + describe(L, -1));
  lua_pop(L, 1);
  return text;
}

/// All of the table is right before any of it holds.
void apply_table(lua_State* L, messages::Logs& logs) {
  const auto level = setting_of(L, "level"), file = setting_of(L, "file"), only = setting_of(L, "only");
  if (level) logs.apply_level(*level);  // before single logs
  for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1)) {
    const std::string name = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : describe(L, -2);
    if (name != "level" && name != "file" && name != "only") logs.apply(name, detail_at(L, logs, name));
  }
  if (file) messages::set_log_file(*file);
  if (only) messages::set_debug_function(*only);
}

/// triage.set_logs{recompiles = true, capture = "+", graph_breaks = false},
/// triage.set_logs("recompiles,+capture,-graph_breaks")
int set_logs(lua_State* L) {
  refuse_in_selection(L, "`triage.set_logs`");
  return on_behalf_of("triage.set_logs", [&] {
    messages::Logs logs = messages::current_logs();
    if (lua_type(L, 1) == LUA_TSTRING) {
      apply_logs(L, logs, lua_tostring(L, 1));
    } else {
      table_argument(L, {1, "triage.set_logs", "logs"});
      apply_table(L, logs);
    }
    messages::set_current_logs(logs);
    return 0;
  });
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

void add_compiler_control(lua_State* L) {
  static const LimitedFunction functions[] = {{"set_stance", guarded<lua_set_stance>, 1},
                                              {"get_stance", guarded<lua_get_stance>, 0},
                                              {"set_logs", guarded<set_logs>, 1},
                                              {"reset", guarded<reset>, 0}};
  set_limited(L, "triage.", functions);
}

}  // namespace triage::lua
