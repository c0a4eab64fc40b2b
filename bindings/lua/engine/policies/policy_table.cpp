#include "bindings/lua/engine/policies/policy_table.h"

#include "bindings/lua/capture/user_code.h"
#include "bindings/lua/engine/policies/policy_codes.h"
#include "bindings/lua/engine/policies/policy_fixtures.h"
#include "bindings/lua/engine/policies/policy_params.h"
#include "bindings/lua/engine/policies/policy_promises.h"
#include "bindings/lua/engine/policies/policy_ranges.h"
#include "bindings/lua/engine/policies/policy_state.h"
#include "bindings/lua/flags/flags_library.h"
#include "bindings/lua/semantics/chunk.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/state/table_fields.h"
#include "bindings/lua/state/userdata.h"
#include "bindings/lua/tensors/calls/overloads.h"
#include "bindings/lua/typing/typing.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string_view>

namespace triage::lua {
namespace {

const char policy_mark = 0;  // its address is the registry key of the metatable that marks policies

constexpr std::array<std::string_view, 17> fields = {
    "name", "inputs",   "outputs",      "params",       "state",     "codes", "fullgraph", "masked_rows", "signature",
    "lua",  "on_error", "on_violation", "accumulation", "positions", "run",   "tests",     "verify"};

// Of one policy; names are compared with each other.
constexpr size_t most_inputs = 200, most_params = 1000, most_tests = 1000, most_positions = 64, longest_name = 255;

void check_count(lua_State* L, int list, const char* field, size_t most) {
  if (lua_rawlen(L, list) > most)
    throw LoadError(std::string("policy: field '") + field + "' has " + std::to_string(lua_rawlen(L, list)) +
                    " entries; at most " + std::to_string(most) + " are allowed");
}

bool is_name(const std::string& text) {
  if (text.size() > longest_name) return false;
  if (text.empty() || !(std::isalpha(static_cast<unsigned char>(text[0])) || text[0] == '_')) return false;
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

bool is_control(unsigned char c) { return c < 0x20 || c == 0x7F; }

/// Names stand in lines of the log, and other text.
bool is_one_line(std::string_view text) { return !text.empty() && std::none_of(text.begin(), text.end(), is_control); }

/// Of the table at the top.
void check_name(lua_State* L, const std::string& where) {
  if (lua_getfield(L, -1, "name") == LUA_TSTRING) {
    size_t length = 0;
    const char* const name = lua_tolstring(L, -1, &length);
    if (length > longest_name || !is_one_line({name, length}))
      throw LoadError(where +
                      ": field 'name': expected one line of 1 to 255 bytes of text, got text that is empty, longer, or "
                      "has a line break or another control character");
  }
  lua_pop(L, 1);
}

void check_known_fields(lua_State* L, int table) {
  lua_pushnil(L);
  while (lua_next(L, table)) {
    lua_pop(L, 1);
    if (lua_type(L, -1) != LUA_TSTRING)
      throw LoadError(fmt::format("policy: expected named fields only ({})", fmt::join(fields, ", ")));
    std::string key = lua_tostring(L, -1);
    if (std::find(fields.begin(), fields.end(), key) == fields.end())
      throw LoadError(fmt::format("policy: there is no field '{}'{} (fields: {})", key,
                                  did_you_mean(close_words(key, {fields.begin(), fields.end()})),
                                  fmt::join(fields, ", ")));
  }
}

/// The field's value on the stack; false and nothing where it is nil.
bool get_field(lua_State* L, int table, const char* name, int type, const char* expected) {
  int got = lua_getfield(L, table, name);
  if (got == LUA_TNIL) {
    lua_pop(L, 1);
    return false;
  }
  if (got != type)
    throw LoadError(std::string("policy: field '") + name + "': expected " + expected + ", got a " +
                    lua_typename(L, got));
  return true;
}

/// `ranges`: of outputs, which may be declared as tables with a range.
std::vector<std::string> read_names(lua_State* L, int table, const char* field,
                                    std::vector<std::optional<OutputRange>>* ranges = nullptr) {
  std::vector<std::string> names;
  if (!get_field(L, table, field, LUA_TTABLE, "a list of names, such as {\"x\", \"y\"}")) return names;
  int list = lua_gettop(L);
  if (const std::string beside = beside_list(L, list); !beside.empty())
    throw LoadError(fmt::format("policy: field '{}': the list of names has {}", field, beside));
  check_count(L, list, field, most_inputs);
  for (lua_Integer i = 1; i <= static_cast<lua_Integer>(lua_rawlen(L, list)); ++i) {
    if (lua_rawgeti(L, list, i) == LUA_TTABLE && ranges) {
      ranges->resize(static_cast<size_t>(i));
      ranges->back() = read_range(L, fmt::format("policy: field '{}': entry {}", field, i));
    }
    bool is_string = lua_type(L, -1) == LUA_TSTRING;
    std::string name = is_string ? lua_tostring(L, -1) : "";
    if (!is_name(name))
      throw LoadError(std::string("policy: field '") + field + "': entry " + std::to_string(i) +
                      " is not a name (letters, digits and _)");
    if (std::find(names.begin(), names.end(), name) != names.end())
      throw LoadError(std::string("policy: field '") + field + "' names '" + name + "' twice");
    names.push_back(std::move(name));
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  return names;
}

std::vector<triage::Param> read_params(lua_State* L, int table) {
  std::vector<triage::Param> params;
  if (!get_field(L, table, "params", LUA_TTABLE, "a table of names and values")) return params;
  int list = lua_gettop(L);
  lua_pushnil(L);
  while (lua_next(L, list)) {
    if (lua_type(L, -2) != LUA_TSTRING || !is_name(lua_tostring(L, -2)))
      throw LoadError("policy: field 'params': expected names and values, as in params = { limit = 1e6 }");
    std::string name = lua_tostring(L, -2);
    params.push_back(read_param(L, std::move(name)));
    if (params.size() > most_params)
      throw LoadError("policy: field 'params' has more than " + std::to_string(most_params) + " entries");
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  // Table order is not defined; the signature's must be.
  std::sort(params.begin(), params.end(),
            [](const triage::Param& a, const triage::Param& b) { return a.name < b.name; });
  return params;
}

/// The type at the top, which belongs to the input or output `name`.
const TensorSpec& check_type(lua_State* L, const std::string& name) {
  const TensorSpec* spec = test_spec(L, -1);
  if (!spec)
    throw LoadError("policy: field 'signature': '" + name + "': expected a type such as Tensor(float32_t, {\"N\", " +
                    "512}), got a " + luaL_typename(L, -1));
  for (const Dim& dim : spec->dims)
    if (dim.kind == Dim::Kind::attribute)
      throw LoadError("policy: field 'signature': '" + name + "': " + dim.text() +
                      " is an attribute of `self`, and a policy has no `self`; write the size, or a name for any size");
  return *spec;
}

/// Where `names` has `name`, its type there becomes `spec`.
void set_type(std::vector<std::optional<TensorSpec>>& types, const std::vector<std::string>& names,
              const std::string& name, const TensorSpec& spec) {
  const auto place = std::find(names.begin(), names.end(), name);
  if (place == names.end()) return;
  types.resize(names.size());
  types[static_cast<size_t>(place - names.begin())] = spec;
}

/// signature = { z = Tensor(float32_t, {"N", 512}), f = Tensor(error_t) }: types of inputs and outputs, by name. What
/// is both an input and an output has the type in both places.
void read_signature(lua_State* L, int table, Signature& signature) {
  if (!get_field(L, table, "signature", LUA_TTABLE, "a table of inputs and their types")) return;
  const int list = lua_gettop(L);
  signature.input_types.resize(signature.inputs.size());
  lua_pushnil(L);
  while (lua_next(L, list)) {
    const std::string name = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
    const auto is_in = [&](const std::vector<std::string>& names) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    if (!is_in(signature.inputs) && !is_in(signature.outputs))
      throw LoadError(
          "policy: field 'signature': " +
          (name.empty() ? "an entry has no name"
                        : "'" + name + "' is neither an input of the policy nor one of its `outputs`") +
          "; types belong to inputs and outputs by name, as in signature = { z = Tensor(float32_t, {\"N\", 512}) }");
    const TensorSpec& spec = check_type(L, name);
    set_type(signature.input_types, signature.inputs, name, spec);
    set_type(signature.output_types, signature.outputs, name, spec);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
}

/// Names of the parameters of the function at the top of the stack, or of the one that it checks. Throws `complaint`
/// where it takes any number.
std::vector<std::string> parameter_names(lua_State* L, const char* complaint) {
  push_wrapped(L, -1);
  if (!lua_isfunction(L, -1)) throw LoadError(complaint);  // a module
  lua_Debug info;
  lua_pushvalue(L, -1);
  lua_getinfo(L, ">u", &info);
  if (info.isvararg) throw LoadError(complaint);
  std::vector<std::string> names;
  for (int i = 1; i <= info.nparams; ++i)
    if (const char* name = lua_getlocal(L, nullptr, i)) names.emplace_back(name);
  lua_pop(L, 1);
  return names;
}

/// Of the parameters of `run`, the last receives `what`: run(z, f, p), or run(z, p, s). One alone that has not the name
/// of such
/// (`short_name`, or `what`) is an input that was forgotten to be told from them.
void drop_last_parameter(std::vector<std::string>& names, const std::string& what, const std::string& short_name) {
  if (names.size() == 1 && names[0] != short_name && names[0] != what && names[0] != "_")
    throw LoadError("policy: run(" + names[0] + ") takes 1 parameter, and with " + what + " the last one receives " +
                    (what == "params" ? "them" : "it") + ": write run = function(" + names[0] + ", " + short_name +
                    "), or name the inputs, as in inputs = { \"" + names[0] + "\" }");
  if (!names.empty()) names.pop_back();
}

/// run(z, p, s)
std::vector<std::string> input_parameters(std::vector<std::string> names, const Signature& signature) {
  if (!signature.state.empty() && !signature.params.empty() && names.size() == 2 && names[1] != "s" &&
      names[1] != "state")
    throw LoadError("policy: run(" + names[0] + ", " + names[1] +
                    ") takes 2 parameters, and with params and state the last two receive them: write run = function(" +
                    names[0] + ", p, s), or name the inputs, as in inputs = { \"" + names[0] + "\" }");
  if (!signature.state.empty()) drop_last_parameter(names, "state", "s");
  if (!signature.params.empty()) drop_last_parameter(names, "params", "p");
  return names;
}

/// Of a test, at the top: the names of its fields. Tests are read again when they run: no metamethod may make a field.
void check_test_fields(lua_State* L, const std::string& where) {
  constexpr std::array<std::string_view, 6> known = {"name", "args", "check", "expect", "params", "state"};
  for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
    const std::string key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
    if (key.empty()) throw LoadError(where + ": expected named fields only (name, args, check, expect, params, state)");
    if (std::find(known.begin(), known.end(), key) == known.end())
      throw LoadError(where + ": there is no field '" + key + "'" +
                      did_you_mean(close_words(key, {known.begin(), known.end()})) +
                      " (fields: name, args, check, expect, params, state)");
  }
}

/// What stands under a name is no test of a list, and would never run.
void check_is_list_of_tests(lua_State* L, int list) {
  for (lua_pushnil(L); lua_next(L, list); lua_pop(L, 1)) {
    if (lua_isinteger(L, -2)) continue;
    const std::string key =
        lua_type(L, -2) == LUA_TSTRING ? "'" + std::string(lua_tostring(L, -2)) + "'" : describe(L, -2);
    throw LoadError(
        "policy: field 'tests': expected a list of tables, tests = { { name = \"...\", args = function() return "
        "... end, check = function(...) end } }, got the key " +
        key + "; write its name as the field 'name' of a test");
  }
}

/// Of a test, at the top: a function makes the inputs, or a table has them; a function judges the outputs, or a table
/// has what they should be, or both.
void check_args_and_check(lua_State* L, const std::string& where) {
  const int args = push_own_field(L, -1, "args");
  if (args == LUA_TTABLE)
    check_fixtures(L, where + ": field 'args'");
  else if (args != LUA_TFUNCTION)
    throw LoadError(where + ": field 'args': expected a function, or a table with an entry for each input");
  const int expect = push_own_field(L, -2, "expect");
  if (expect == LUA_TTABLE)
    check_fixtures(L, where + ": field 'expect'");
  else if (expect != LUA_TNIL)
    throw LoadError(where + ": field 'expect': expected a table with entries for outputs, got " + describe(L, -1));
  const int check = push_own_field(L, -3, "check");
  if (check != LUA_TFUNCTION && (check != LUA_TNIL || expect == LUA_TNIL))
    throw LoadError(where + ": field 'check': expected a function" +
                    (check == LUA_TNIL ? ", or the field 'expect' in its place" : ""));
  lua_pop(L, 3);
}

void check_tests(lua_State* L, int table, const std::vector<triage::Param>& params,
                 const std::vector<StateSpec>& state) {
  if (!get_field(L, table, "tests", LUA_TTABLE, "a list of tests")) return;
  int list = lua_gettop(L);
  check_count(L, list, "tests", most_tests);
  check_is_list_of_tests(L, list);
  for (lua_Integer i = 1; i <= static_cast<lua_Integer>(lua_rawlen(L, list)); ++i) {
    std::string where = "policy: test " + std::to_string(i);
    if (lua_rawgeti(L, list, i) != LUA_TTABLE) throw LoadError(where + ": expected a table { name, args, check }");
    check_test_fields(L, where);
    check_args_and_check(L, where);
    check_test_params(L, where, params);
    if (push_own_field(L, -1, "state") != LUA_TNIL) check_test_state(L, where, state);
    lua_pop(L, 1);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
}

/// The rewriter has seen to it, where it could (rewriter/natural_edits.h).
void check_dialect(lua_State* L) {
  if (!get_field(L, 1, "lua", LUA_TSTRING, "\"tensor\"")) return;
  const std::string dialect = lua_tostring(L, -1);
  lua_pop(L, 1);
  if (dialect != "tensor")
    throw LoadError("policy: field 'lua': expected \"tensor\" (an `if` on a mask chooses per sample), got \"" +
                    dialect + "\"; leave the field out for plain Lua");
  lua_getfield(L, 1, "run");
  push_wrapped(L, -1);
  if (lua_isfunction(L, -1) && !lua_iscfunction(L, -1) && !is_natural_function(L, -1))
    throw LoadError(
        "policy: field 'lua': the chunk with the function `run` was loaded as plain Lua, because triage selects the "
        "dialect before it runs a chunk. Write lua = \"tensor\" as a literal in a call `policy {...}` of that chunk, "
        "or --!tensor on its first line");
  lua_pop(L, 2);
}

/// on_error = "pass_through": what the host does when the policy fails.
std::optional<OnError> read_on_error(lua_State* L, int table) {
  if (!get_field(L, table, "on_error", LUA_TSTRING, "\"raise\", \"pass_through\" or \"last_good\"")) return {};
  const std::string word = lua_tostring(L, -1);
  lua_pop(L, 1);
  for (const OnError on_error : {OnError::raise, OnError::pass_through, OnError::last_good})
    if (word == to_string(on_error)) return on_error;
  throw LoadError("policy: field 'on_error': expected \"raise\", \"pass_through\" or \"last_good\", got \"" + word +
                  "\"" + did_you_mean(close_words(word, {"raise", "pass_through", "last_good"})));
}

MaskedRows read_masked_rows(lua_State* L, int table) {
  if (!get_field(L, table, "masked_rows", LUA_TSTRING, "\"warn\" or \"require\"")) return MaskedRows::warn;
  const std::string word = lua_tostring(L, -1);
  lua_pop(L, 1);
  for (const MaskedRows mode : {MaskedRows::warn, MaskedRows::require})
    if (word == masked_rows_name(mode)) return mode;
  throw LoadError("policy: field 'masked_rows': expected \"warn\" or \"require\", got \"" + word + "\"" +
                  did_you_mean(close_words(word, {"warn", "require"})));
}

/// on_violation = "revert": what the host does with samples out of the declared range of an output.
std::optional<OnViolation> read_on_violation(lua_State* L, int table) {
  if (!get_field(L, table, "on_violation", LUA_TSTRING, "\"flag\", \"pass_through\" or \"revert\"")) return {};
  const std::string word = lua_tostring(L, -1);
  lua_pop(L, 1);
  for (const OnViolation choice : {OnViolation::flag, OnViolation::pass_through, OnViolation::revert})
    if (word == to_string(choice)) return choice;
  throw LoadError("policy: field 'on_violation': expected \"flag\", \"pass_through\" or \"revert\", got \"" + word +
                  "\"" + did_you_mean(close_words(word, {"flag", "pass_through", "revert"})));
}

/// accumulation = {priority = Priority.SEVERITY, order = Order.LAST}: which errors a full record keeps.
std::optional<AccumulationConfig> read_accumulation(lua_State* L, int table) {
  std::optional<AccumulationConfig> accumulation;
  if (push_own_field(L, table, "accumulation") != LUA_TNIL) {
    try {
      accumulation = check_accumulation(L, lua_gettop(L));
    } catch (const ConfigError& error) {
      throw LoadError(std::string("policy: field 'accumulation': ") + error.what());
    }
  }
  lua_pop(L, 1);
  return accumulation;
}

/// positions = {"encoder.2"}: of which locations the first positions are kept.
std::vector<std::string> read_positions(lua_State* L, int table) {
  std::vector<std::string> locations;
  if (!get_field(L, table, "positions", LUA_TTABLE, "a list of locations")) return locations;
  const int list = lua_gettop(L);
  check_count(L, list, "positions", most_positions);
  for (lua_Integer i = 1; i <= static_cast<lua_Integer>(lua_rawlen(L, list)); ++i, lua_pop(L, 1)) {
    const bool is_text = lua_rawgeti(L, list, i) == LUA_TSTRING;
    const std::string location = is_text ? lua_tostring(L, -1) : "";
    if (!is_one_line(location))
      throw LoadError(
          fmt::format("policy: field 'positions': entry {}: expected the path of a location, such as "
                      "\"encoder.2\", got {}",
                      i, is_text ? "a text that is empty or has more than one line" : describe(L, -1)));
    check_location_name(context(L), location);
    if (std::find(locations.begin(), locations.end(), location) != locations.end())
      throw LoadError(fmt::format("policy: field 'positions' lists '{}' twice", location));
    locations.push_back(location);
  }
  if (lua_pushnil(L); locations.empty() && lua_next(L, list))
    throw LoadError("policy: field 'positions': expected a list of locations, as in positions = { \"encoder.2\" }");
  lua_settop(L, list - 1);
  return locations;
}

/// policy {...}
int make_policy(lua_State* L) {
  if (lua_type(L, 1) != LUA_TTABLE) throw LoadError("policy: expected a table, got " + describe(L, 1));
  lua_settop(L, 1);
  check_known_fields(L, 1);
  if (!get_field(L, 1, "run", LUA_TFUNCTION, "a function"))
    throw LoadError("policy: field 'run' is missing: the function of the policy");
  lua_pop(L, 1);
  check_dialect(L);
  check_name(L, "policy");
  Signature declared;
  declared.inputs = read_names(L, 1, "inputs");
  declared.outputs = read_names(L, 1, "outputs", &declared.output_ranges);
  read_promises(L, 1, declared.outputs);
  check_tests(L, 1, read_params(L, 1), read_state(L, 1));
  name_codes(L, read_codes(L, 1));
  read_on_error(L, 1);
  if (const auto on_violation = read_on_violation(L, 1); on_violation && !declared.inputs.empty())
    check_on_violation(*on_violation, declared);
  read_accumulation(L, 1);
  read_positions(L, 1);
  read_masked_rows(L, 1);
  for (auto [field, type, expected] :
       {std::tuple("name", LUA_TSTRING, "a string"), std::tuple("fullgraph", LUA_TBOOLEAN, "true or false")})
    if (get_field(L, 1, field, type, expected)) lua_pop(L, 1);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &policy_mark);
  lua_setmetatable(L, 1);
  return 1;
}

bool is_policy(lua_State* L, int index) { return lua_istable(L, index) && has_metatable(L, index, &policy_mark); }

PolicyDefinition read_function(lua_State* L, std::string name) {
  PolicyDefinition policy;
  policy.name = std::move(name);
  policy.signature.inputs = parameter_names(L,
                                            "the policy's function takes `...`, so its inputs have no names. Write the "
                                            "parameters out, or use policy { inputs = "
                                            "{...}, run = ... }.");
  policy.run = luaL_ref(L, LUA_REGISTRYINDEX);
  return policy;
}

/// In a graph, inputs, params and state stand side by side.
void check_distinct(const Signature& signature) {
  const auto is_input = [&](const std::string& name) {
    return std::find(signature.inputs.begin(), signature.inputs.end(), name) != signature.inputs.end();
  };
  for (const auto& param : signature.params)
    if (is_input(param.name)) throw LoadError("policy: '" + param.name + "' is both an input and a param");
  for (const StateSpec& state : signature.state) {
    const bool is_param = std::any_of(signature.params.begin(), signature.params.end(),
                                      [&](const triage::Param& param) { return param.name == state.name; });
    if (is_input(state.name) || is_param)
      throw LoadError("policy: '" + state.name + "' is both " + (is_param ? "a param" : "an input") +
                      " and a state; rename the state");
  }
}

PolicyDefinition read_table(lua_State* L, std::string name) {
  int table = lua_gettop(L);
  PolicyDefinition policy;
  policy.name = std::move(name);
  if (get_field(L, table, "name", LUA_TSTRING, "a string")) {
    policy.name = lua_tostring(L, -1);
    lua_pop(L, 1);
  }
  policy.signature.inputs = read_names(L, table, "inputs");
  policy.signature.outputs = read_names(L, table, "outputs", &policy.signature.output_ranges);
  policy.signature.output_ranges.resize(policy.signature.num_ranges() > 0 ? policy.signature.outputs.size() : 0);
  policy.signature.params = read_params(L, table);
  policy.signature.state = read_state(L, table);
  policy.signature.codes = read_codes(L, table);
  policy.signature.positions = read_positions(L, table);
  if (get_field(L, table, "fullgraph", LUA_TBOOLEAN, "true or false")) {
    policy.fullgraph = lua_toboolean(L, -1);
    lua_pop(L, 1);
  }
  policy.on_error = read_on_error(L, table);
  policy.masked_rows = read_masked_rows(L, table);
  policy.promises = read_promises(L, table, policy.signature.outputs);
  lua_getfield(L, table, "run");
  if (policy.signature.inputs.empty()) {
    policy.signature.inputs = input_parameters(
        parameter_names(L, "policy: the function takes `...`; name its inputs: inputs = { \"z\", ... }"),
        policy.signature);
  }
  check_distinct(policy.signature);
  if (const auto on_violation = read_on_violation(L, table)) {
    check_on_violation(*on_violation, policy.signature);
    policy.on_violation = *on_violation;
  }
  policy.accumulation = read_accumulation(L, table);
  policy.run = luaL_ref(L, LUA_REGISTRYINDEX);
  read_signature(L, table, policy.signature);
  if (get_field(L, table, "tests", LUA_TTABLE, "a list of tests")) policy.tests = luaL_ref(L, LUA_REGISTRYINDEX);
  lua_pop(L, 1);
  return policy;
}

}  // namespace

void push_policy(lua_State* L) {
  lua_newtable(L);
  lua_pushliteral(L, "policy");
  lua_setfield(L, -2, "__name");
  lua_pushliteral(L, "policy");
  lua_setfield(L, -2, "__metatable");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &policy_mark);
  push_limited(L, "policy", guarded<make_policy>, 1);
}

PolicyDefinition read_policy(lua_State* L, const std::string& path) {
  std::string name = std::filesystem::path(path).stem().string();
  std::replace_if(name.begin(), name.end(), is_control, '_');
  if (lua_isfunction(L, -1)) return read_function(L, name);
  if (is_policy(L, -1)) return read_table(L, name);
  if (lua_istable(L, -1))
    throw LoadError(path +
                    ": the script returned a plain table; a policy is a function, or the result of policy {...}");
  throw LoadError(path + ": the script returned " +
                  (lua_isnil(L, -1) ? "nothing" : std::string("a ") + luaL_typename(L, -1)) +
                  "; a policy file ends with `return function(z) ... end` or `return policy {...}`");
}

}  // namespace triage::lua
