#include "bindings/lua/flags/flags_library.h"
#include "bindings/lua/semantics/intrinsics.h"
#include "bindings/lua/state/effects.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/state/userdata.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/constants.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/number.h"
#include "runtime/flags/forms.h"

#include <triage/config.h>
#include <triage/error.h>

#include <strings.h>

#include <array>
#include <cctype>
#include <string>
#include <string_view>

/// ErrorConfig and AccumulationConfig as Lua values.
///
/// Contract: a config object holds its values itself; the global one (`CONFIG`) reads and writes those of the process.
/// What `get_config` returns is the object that is global now: written to, it changes the global configuration for as
/// long as it is that object, so that `local saved = get_config(); set_config(other); ...; set_config(saved)` restores
/// it.
namespace triage::lua {
namespace {

const char config_metatable = 0;  // registry keys: their addresses
const char accumulation_metatable = 0;
const char current_config = 0;

constexpr std::array<const char*, 3> axis_names = {"priority", "order", "dedupe"};

struct ConfigBox {
  bool global = false;     // CONFIG
  bool read_only = false;  // in policies: what get_config returned
  ErrorConfig value;
};

ConfigBox* test_config(lua_State* L, int index) { return test_userdata<ConfigBox>(L, index, &config_metatable); }
AccumulationConfig* test_accumulation(lua_State* L, int index) {
  return test_userdata<AccumulationConfig>(L, index, &accumulation_metatable);
}

ConfigBox& check_config(lua_State* L, int index) {
  ConfigBox* box = test_config(L, index);
  if (!box) throw InputError("expected an ErrorConfig, got " + describe(L, index));
  return *box;
}

ErrorConfig value_of(lua_State* L, const ConfigBox& box) { return box.global ? config_in_force(L) : box.value; }

void push_config(lua_State* L, ConfigBox box) { push_userdata(L, std::move(box), &config_metatable); }

void push_accumulation(lua_State* L, const AccumulationConfig& value) {
  push_userdata(L, value, &accumulation_metatable);
}

int64_t check_integer_field(lua_State* L, int index, const char* field) {
  specialize_number(L, index);
  int is_integer = 0;
  const lua_Integer value = lua_type(L, index) == LUA_TNUMBER ? lua_tointegerx(L, index, &is_integer) : 0;
  if (!is_integer) throw ConfigError(std::string(field) + ": expected an integer, got " + describe(L, index));
  return value;
}

bool check_boolean_field(lua_State* L, int index, const char* field) {
  specialize_number(L, index);
  if (!lua_isboolean(L, index))
    throw ConfigError(std::string(field) + ": expected true or false, got " + describe(L, index));
  return lua_toboolean(L, index) != 0;
}

constexpr std::array<const char*, 3> priority_names = {"CHRONO", "SEVERITY", "LOCATION"};
constexpr std::array<const char*, 2> order_names = {"FIRST", "LAST"};
constexpr std::array<const char*, 4> dedupe_names = {"NONE", "CODE", "LOCATION", "UNIQUE"};

/// "Order.FIRST or Order.LAST"
template <size_t count>
std::string choices(const char* kind, const std::array<const char*, count>& names) {
  std::string text;
  for (size_t i = 0; i < count; ++i)
    text += std::string(i == 0 ? "" : i + 1 == count ? " or " : ", ") + kind + "." + names[i];
  return text;
}

/// One axis of AccumulationConfig from the value at `index`: a constant such as Order.LAST, or its name, "last".
template <typename Enum, size_t count>
Enum check_axis(lua_State* L, int index, const char* kind, const std::array<const char*, count>& names) {
  specialize_number(L, index);
  int is_integer = 0;
  lua_Integer value = lua_type(L, index) == LUA_TNUMBER ? lua_tointegerx(L, index, &is_integer) : -1;
  if (lua_type(L, index) == LUA_TSTRING)
    for (size_t i = 0; i < count; ++i)
      if (strcasecmp(lua_tostring(L, index), names[i]) == 0) is_integer = true, value = static_cast<lua_Integer>(i);
  if (!is_integer || value < 0 || value >= static_cast<lua_Integer>(count)) {
    std::string field = kind;
    field[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(field[0])));
    throw ConfigError("AccumulationConfig: " + field + ": expected " + choices(kind, names) + ", got " +
                      describe(L, index));
  }
  return static_cast<Enum>(value);
}

void set_axis(lua_State* L, AccumulationConfig& value, std::string_view axis, int index) {
  if (axis == "priority") {
    value.priority = check_axis<Priority>(L, index, "Priority", priority_names);
  } else if (axis == "order") {
    value.order = check_axis<Order>(L, index, "Order", order_names);
  } else if (axis == "dedupe") {
    value.dedupe = check_axis<Dedupe>(L, index, "Dedupe", dedupe_names);
  } else {
    throw ConfigError("AccumulationConfig: there is no field '" + std::string(axis) + "'" +
                      did_you_mean(close_words(std::string(axis), {"priority", "order", "dedupe"})) +
                      " (fields: priority, order, dedupe)");
  }
}

/// From a table {priority = ..., order = ..., dedupe = ...}, or the three in that order.
AccumulationConfig read_accumulation(lua_State* L, int index) {
  AccumulationConfig value;
  if (lua_isnoneornil(L, index)) return value;
  if (!lua_istable(L, index))
    throw ConfigError("AccumulationConfig: expected a table {priority, order, dedupe}, got " + describe(L, index));
  index = lua_absindex(L, index);
  lua_pushnil(L);
  while (lua_next(L, index)) {
    const int key = lua_absindex(L, -2);
    if (lua_isinteger(L, key) && lua_tointeger(L, key) >= 1 && lua_tointeger(L, key) <= 3) {
      set_axis(L, value, axis_names[static_cast<size_t>(lua_tointeger(L, key) - 1)], lua_gettop(L));
    } else {
      set_axis(L, value, lua_type(L, key) == LUA_TSTRING ? lua_tostring(L, key) : describe(L, key), lua_gettop(L));
    }
    lua_pop(L, 1);
  }
  return value;
}

AccumulationConfig check_accumulation_field(lua_State* L, int index) {
  if (const AccumulationConfig* value = test_accumulation(L, index)) return *value;
  return read_accumulation(L, index);
}

constexpr std::array<const char*, 8> field_names = {
    "flag_dtype",     "num_slots",         "accumulation",          "default_severity",
    "track_overflow", "strict_validation", "use_transposed_layout", "transpose_threshold"};
constexpr std::array<const char*, 3> derived_names = {"slots_per_word", "num_words", "word_bits"};

[[noreturn]] void no_such_field(const std::string& field) {
  std::vector<std::string> known(field_names.begin(), field_names.end());
  known.insert(known.end(), derived_names.begin(), derived_names.end());
  throw ConfigError("ErrorConfig: there is no field '" + field + "'" + did_you_mean(close_words(field, known)));
}

void set_field(lua_State* L, ErrorConfig& value, const std::string& field, int index) {
  if (field == "flag_dtype") {
    const auto dtype = test_dtype(L, index);
    if (!dtype)
      throw ConfigError("flag_dtype: expected torch.int64, torch.int32, torch.float64 or torch.float32, got " +
                        describe(L, index));
    value.flag_dtype = *dtype;
  } else if (field == "num_slots") {
    value.num_slots = check_integer_field(L, index, "num_slots");
  } else if (field == "accumulation") {
    value.accumulation = check_accumulation_field(L, index);
  } else if (field == "default_severity") {
    value.default_severity = static_cast<Severity>(check_integer_field(L, index, "default_severity"));
  } else if (field == "track_overflow") {
    value.track_overflow = check_boolean_field(L, index, "track_overflow");
  } else if (field == "strict_validation") {
    value.strict_validation = check_boolean_field(L, index, "strict_validation");
  } else if (field == "use_transposed_layout") {
    value.use_transposed_layout = check_boolean_field(L, index, "use_transposed_layout");
  } else if (field == "transpose_threshold") {
    value.transpose_threshold = check_integer_field(L, index, "transpose_threshold");
  } else if (std::find(derived_names.begin(), derived_names.end(), field) != derived_names.end()) {
    throw ConfigError(field + " cannot be set: it follows from num_slots and flag_dtype");
  } else {
    no_such_field(field);
  }
  value.validate();
  flags::KnownForms::add(value.flag_dtype, value.num_words());  // the script may ask for flags that others made with it
}

int should_transpose(lua_State* L) {
  at_most(L, 2, "CONFIG:should_transpose");
  const lua_Integer samples = integer_argument(L, {2, "CONFIG:should_transpose", "n"});
  lua_pushboolean(L, value_of(L, check_config(L, 1)).should_transpose(samples));
  return 1;
}

int config_index(lua_State* L) {
  const ErrorConfig value = value_of(L, check_config(L, 1));
  const std::string field = luaL_checkstring(L, 2);
  if (field == "flag_dtype")
    push_dtype(L, value.flag_dtype);
  else if (field == "num_slots")
    lua_pushinteger(L, value.num_slots);
  else if (field == "accumulation")
    push_accumulation(L, value.accumulation);
  else if (field == "default_severity")
    lua_pushinteger(L, to_int(value.default_severity));
  else if (field == "track_overflow")
    lua_pushboolean(L, value.track_overflow);
  else if (field == "strict_validation")
    lua_pushboolean(L, value.strict_validation);
  else if (field == "use_transposed_layout")
    lua_pushboolean(L, value.use_transposed_layout);
  else if (field == "transpose_threshold")
    lua_pushinteger(L, value.transpose_threshold);
  else if (field == "slots_per_word")
    lua_pushinteger(L, value.slots_per_word());
  else if (field == "num_words")
    lua_pushinteger(L, value.num_words());
  else if (field == "word_bits")
    lua_pushinteger(L, value.word_bits());
  else if (field == "should_transpose")
    lua_pushcfunction(L, guarded<should_transpose>);
  else
    no_such_field(field);
  return 1;
}

bool is_current(lua_State* L, int index) {
  index = lua_absindex(L, index);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &current_config);
  const bool same = lua_rawequal(L, -1, index) != 0;
  lua_pop(L, 1);
  return same;
}

int config_newindex(lua_State* L) {
  ConfigBox& box = check_config(L, 1);
  const std::string field = luaL_checkstring(L, 2);
  if ((box.global || box.read_only) && context(L).sandboxed)
    throw InputError("a policy may not change the global configuration (`" + field +
                     "`); pass a configuration to the operations: {config = ErrorConfig{" + field + " = ...}}");
  ErrorConfig changed = box.global ? get_config() : box.value;
  set_field(L, changed, field, 3);
  note_table_write(L, 1);
  const bool replaces_global = box.global || (is_current(L, 1) && box.value == get_config());
  if (replaces_global) set_config(changed);
  if (!box.global) box.value = changed;
  return 0;
}

int config_eq(lua_State* L) {
  const ConfigBox *a = test_config(L, 1), *b = test_config(L, 2);
  lua_pushboolean(L, a && b && value_of(L, *a) == value_of(L, *b));
  return 1;
}

std::string accumulation_text(const AccumulationConfig& value) {
  return std::string("AccumulationConfig{priority=") + priority_names[static_cast<size_t>(value.priority)] +
         ", order=" + order_names[static_cast<size_t>(value.order)] +
         ", dedupe=" + dedupe_names[static_cast<size_t>(value.dedupe)] + "}";
}

int config_tostring(lua_State* L) {
  const ErrorConfig value = value_of(L, check_config(L, 1));
  const std::string text = "ErrorConfig{flag_dtype=" + dtype_name(value.flag_dtype) +
                           ", num_slots=" + std::to_string(value.num_slots) +
                           ", accumulation=" + accumulation_text(value.accumulation) +
                           ", default_severity=" + severity_name(value.default_severity) +
                           (value.track_overflow ? ", track_overflow=true" : "") + "}";
  lua_pushlstring(L, text.data(), text.size());
  return 1;
}

int accumulation_index(lua_State* L) {
  const AccumulationConfig* value = test_accumulation(L, 1);
  if (!value) throw InputError("expected an AccumulationConfig, got " + describe(L, 1));
  const std::string axis = luaL_checkstring(L, 2);
  if (axis == "priority")
    lua_pushinteger(L, static_cast<lua_Integer>(value->priority));
  else if (axis == "order")
    lua_pushinteger(L, static_cast<lua_Integer>(value->order));
  else if (axis == "dedupe")
    lua_pushinteger(L, static_cast<lua_Integer>(value->dedupe));
  else
    throw ConfigError("AccumulationConfig: there is no field '" + axis + "' (fields: priority, order, dedupe)");
  return 1;
}

int accumulation_newindex(lua_State* L) {
  throw InputError(
      "an AccumulationConfig cannot be changed; make another: AccumulationConfig{priority = ..., order = ..., dedupe = "
      "...}");
}

int accumulation_eq(lua_State* L) {
  const AccumulationConfig *a = test_accumulation(L, 1), *b = test_accumulation(L, 2);
  lua_pushboolean(L, a && b && *a == *b);
  return 1;
}

int accumulation_tostring(lua_State* L) {
  const AccumulationConfig* value = test_accumulation(L, 1);
  if (!value) throw InputError("expected an AccumulationConfig, got " + describe(L, 1));
  lua_pushstring(L, accumulation_text(*value).c_str());
  return 1;
}

int new_accumulation(lua_State* L) {
  if (lua_gettop(L) > 1) {  // AccumulationConfig(priority, order, dedupe)
    lua_createtable(L, 3, 0);
    for (int i = 1; i <= 3 && i < lua_gettop(L); ++i) {
      lua_pushvalue(L, i);
      lua_rawseti(L, -2, i);
    }
    lua_replace(L, 1);
    lua_settop(L, 1);
  }
  push_accumulation(L, read_accumulation(L, 1));
  return 1;
}

ErrorConfig read_config(lua_State* L, int index) {
  ErrorConfig value;
  index = lua_absindex(L, index);
  lua_pushnil(L);
  while (lua_next(L, index)) {
    const int key = lua_absindex(L, -2);
    set_field(L, value, lua_type(L, key) == LUA_TSTRING ? lua_tostring(L, key) : describe(L, key), lua_gettop(L));
    lua_pop(L, 1);
  }
  return value;
}

int new_config(lua_State* L) {
  if (!lua_isnoneornil(L, 1) && !lua_istable(L, 1))
    throw ConfigError("ErrorConfig: expected a table of fields, as in ErrorConfig{num_slots = 32}, got " +
                      describe(L, 1));
  push_config(L, {false, false, lua_istable(L, 1) ? read_config(L, 1) : ErrorConfig{}});
  mark_created(L, -1);
  return 1;
}

int lua_get_config(lua_State* L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &current_config);
  const ConfigBox* box = test_config(L, -1);
  const ErrorConfig config = config_in_force(L);
  if (box && box->value == config) return 1;
  push_config(L, {false, context(L).sandboxed, config});
  if (context(L).accumulation) return 1;  // it is not the global one
  lua_pushvalue(L, -1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &current_config);
  return 1;
}

void make_current(lua_State* L, int index) {
  index = lua_absindex(L, index);
  const ConfigBox& box = check_config(L, index);
  if (box.global) return;
  set_config(box.value);
  lua_pushvalue(L, index);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &current_config);
}

/// The end of `local _ <close> = set_config(c)`: upvalue 1 is what was global before.
int restore_config(lua_State* L) {
  make_current(L, lua_upvalueindex(1));
  return 0;
}

/// set_config(c) -> a value that restores the configuration before when a <close> variable that holds it goes
int lua_set_config(lua_State* L) {
  on_behalf_of("set_config", [L] { check_config(L, 1); });
  break_graph(L, capture::Break::mode, "`set_config` changes the configuration of the process",
              "Pass a configuration to the operations: {config = ErrorConfig{...}}.");
  lua_settop(L, 1);
  lua_get_config(L);
  const int before = lua_gettop(L);
  lua_newtable(L);
  lua_newtable(L);
  lua_pushvalue(L, before);
  lua_pushcclosure(L, guarded<restore_config>, 1);
  lua_setfield(L, -2, "__close");
  lua_setmetatable(L, -2);
  make_current(L, 1);
  return 1;
}

/// config (or nil: the global one) -> num_slots, policy, dtype, default severity: what operators take.
int resolve_config(lua_State* L) {
  const ErrorConfig config = error_config(L, 1);
  lua_pushinteger(L, config.num_slots);
  lua_pushinteger(L, config.policy());
  push_dtype(L, config.flag_dtype);
  lua_pushinteger(L, to_int(config.default_severity));
  return 4;
}

void add_bit_layout(lua_State* L) {
  static constexpr std::pair<const char*, int64_t> constants[] = {
      {"SLOT_BITS", SLOT_BITS},           {"SLOT_MASK", SLOT_MASK},         {"SLOTS_PER_WORD", SLOTS_PER_WORD},
      {"SEVERITY_SHIFT", SEVERITY_SHIFT}, {"SEVERITY_BITS", SEVERITY_BITS}, {"SEVERITY_MASK", SEVERITY_MASK},
      {"CODE_SHIFT", CODE_SHIFT},         {"CODE_BITS", CODE_BITS},         {"CODE_MASK", CODE_MASK},
      {"LOCATION_SHIFT", LOCATION_SHIFT}, {"LOCATION_BITS", LOCATION_BITS}, {"LOCATION_MASK", LOCATION_MASK}};
  lua_newtable(L);
  for (const auto& [name, value] : constants) {
    lua_pushinteger(L, value);
    lua_setfield(L, -2, name);
  }
  lua_setfield(L, -2, "bit_layout");
}

/// Names for completion: fields are true, methods functions. Into the metatable under `key`.
template <typename Names>
void list_fields(lua_State* L, const void* key, const Names& names) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, key);
  if (lua_getfield(L, -1, "__fields") != LUA_TTABLE) {
    lua_pop(L, 1);
    lua_newtable(L);
    lua_pushvalue(L, -1);
    lua_setfield(L, -3, "__fields");
  }
  for (const char* name : names) {
    lua_pushboolean(L, 1);
    lua_setfield(L, -2, name);
  }
  lua_pop(L, 2);
}

void list_all_fields(lua_State* L) {
  list_fields(L, &config_metatable, field_names);
  list_fields(L, &config_metatable, derived_names);
  list_fields(L, &accumulation_metatable, axis_names);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &config_metatable);
  lua_getfield(L, -1, "__fields");
  lua_pushcfunction(L, guarded<should_transpose>);
  lua_setfield(L, -2, "should_transpose");
  lua_pop(L, 2);
}

}  // namespace

std::optional<ErrorConfig> test_error_config(lua_State* L, int index) {
  const ConfigBox* box = test_config(L, index);
  return box ? std::optional(value_of(L, *box)) : std::nullopt;
}

AccumulationConfig check_accumulation(lua_State* L, int index) { return check_accumulation_field(L, index); }

ErrorConfig error_config(lua_State* L, int index) {
  if (lua_isnoneornil(L, index)) return config_in_force(L);
  if (const auto config = test_error_config(L, index)) return *config;
  throw InputError("config: expected an ErrorConfig, as in {config = ErrorConfig{num_slots = 32}}, got " +
                   describe(L, index));
}

void add_config(lua_State* L) {
  static const luaL_Reg config_functions[] = {{"__index", guarded<config_index>},
                                              {"__newindex", guarded<config_newindex>},
                                              {"__eq", guarded<config_eq>},
                                              {"__tostring", guarded<config_tostring>},
                                              {nullptr, nullptr}};
  make_metatable(L, &config_metatable, "ErrorConfig", config_functions);
  static const luaL_Reg accumulation_functions[] = {{"__index", guarded<accumulation_index>},
                                                    {"__newindex", guarded<accumulation_newindex>},
                                                    {"__eq", guarded<accumulation_eq>},
                                                    {"__tostring", guarded<accumulation_tostring>},
                                                    {nullptr, nullptr}};
  make_metatable(L, &accumulation_metatable, "AccumulationConfig", accumulation_functions);
  list_all_fields(L);
  static const LimitedFunction functions[] = {{"ErrorConfig", guarded<new_config>, 1},
                                              {"AccumulationConfig", guarded<new_accumulation>, 3},
                                              {"get_config", guarded<lua_get_config>, 0},
                                              {"set_config", guarded<lua_set_config>, 1},
                                              {"resolve_config", guarded<resolve_config>, 1}};
  set_limited(L, "", functions);
  push_config(L, {true, false, {}});
  lua_setfield(L, -2, "global_config");
  add_bit_layout(L);
}

}  // namespace triage::lua
