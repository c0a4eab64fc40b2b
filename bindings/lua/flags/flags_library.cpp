#include "bindings/lua/flags/flags_library.h"

#include "bindings/lua/flags/positions.h"

#include "bindings/lua/capture/breaks.h"
#include "bindings/lua/capture/nested_regions.h"
#include "bindings/lua/capture/open_chains.h"
#include "bindings/lua/capture/user_code.h"
#include "bindings/lua/flags/prelude.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/state/userdata.h"
#include "bindings/lua/tensors/torch.h"
#include "bindings/lua/values/constants.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/guarded.h"
#include "bindings/lua/values/number.h"
#include "bindings/lua/values/read_only.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/flags/checks.h"
#include "runtime/flags/forms.h"

#include <triage/config.h>
#include <triage/error.h>

#include <string>
#include <utility>
#include <vector>

namespace triage::lua {
namespace {

/// The operation that a check speaks for: its second argument.
std::string operation(lua_State* L, int index) {
  const char* name = lua_tostring(L, index);
  return name ? name : "?";
}

int fail(lua_State* L) { throw InputError(luaL_checkstring(L, 1)); }

int unknown_option(lua_State* L) {
  std::vector<std::string> allowed;
  lua_pushnil(L);
  while (lua_next(L, 3)) {
    lua_pop(L, 1);
    allowed.emplace_back(lua_tostring(L, -1));
  }
  std::sort(allowed.begin(), allowed.end());
  std::string list;
  for (const auto& name : allowed) list += (list.empty() ? "" : ", ") + name;
  const bool named = lua_type(L, 2) == LUA_TSTRING;
  const std::string key = named ? lua_tostring(L, 2) : describe(L, 2);
  throw InputError(operation(L, 1) + ": there is no option '" + key + "'" +
                   (named ? did_you_mean(close_words(key, allowed)) : "") + " (options: " + list + ")");
}

int is_tensor(lua_State* L) {
  lua_pushboolean(L, test_tensor(L, 1) || is_guarded(L, 1));
  return 1;
}

int check_data(lua_State* L);

int is_guarded_tensor(lua_State* L) {
  lua_pushboolean(L, is_guarded(L, 1));
  return 1;
}

/// core.guarded(operation or nil, z, flags) -> both as one. Those that an operation is given have as many samples in
/// every run of a graph.
int make_guarded(lua_State* L) {
  if (!lua_isnil(L, 1)) {
    check_data(L);
    const at::Tensor &z = check_tensor(L, 2), &f = check_tensor(L, 3);
    if (capture::Recorder* recorder = capture::Recorder::current()) recorder->sizes().rely_on({{z, 0, f, 0}});
  }
  lua_settop(L, 3);
  push_guarded(L);
  return 1;
}

/// core.data_of(value) -> what a guarded tensor is without its flags; any other value as it is
int data_of(lua_State* L) {
  push_data(L, 1);
  return 1;
}

int guarded_flags(lua_State* L) {
  push_flags(L, 1);
  return 1;
}

/// core.is_number(value) -> a number, or a truth value, which ATen takes for 0 or 1; of the capture, too
int is_number(lua_State* L) {
  lua_pushboolean(L, lua_type(L, 1) == LUA_TNUMBER || lua_isboolean(L, 1) || test_symbolic(L, 1) != nullptr);
  return 1;
}

/// core.is_param(value): a number that the host sets, which graphs take as an input
int is_param(lua_State* L) {
  const at::Tensor* tensor = test_tensor(L, 1);
  lua_pushboolean(L, tensor && tensor->unsafeGetTensorImpl()->is_wrapped_number());
  return 1;
}

/// core.plain(value) -> the value that a number or truth value of the capture has; any other as it is
int plain(lua_State* L) {
  specialize_number(L, 1);
  lua_settop(L, 1);
  return 1;
}

int is_bool(lua_State* L) {
  const at::Tensor* tensor = test_tensor(L, 1);
  lua_pushboolean(L, tensor && tensor->scalar_type() == at::kBool);
  return 1;
}

int is_callable(lua_State* L) {
  const bool callable = lua_isfunction(L, 1) ||
                        (!test_tensor(L, 1) && !is_guarded(L, 1) && luaL_getmetafield(L, 1, "__call") != LUA_TNIL);
  lua_pushboolean(L, callable);
  return 1;
}

int describe_value(lua_State* L) {
  const std::string text = describe(L, 1);
  lua_pushlstring(L, text.data(), text.size());
  return 1;
}

int describe_key(lua_State* L) {
  if (lua_type(L, 1) == LUA_TSTRING) {
    lua_settop(L, 1);
    return 1;
  }
  return describe_value(L);
}

/// Compares without telling the recorder: what is decided here holds at run time too, for the operator checks again.
int same_shape(lua_State* L) {
  lua_pushboolean(L, check_tensor(L, 1).sizes() == check_tensor(L, 2).sizes());
  return 1;
}

/// The same for what does not check again: a graph holds as long as they are the same.
int same_sizes(lua_State* L) {
  const at::Tensor &x = check_tensor(L, 1), &y = check_tensor(L, 2);
  const bool same = x.sizes() == y.sizes();
  if (capture::Recorder* const recorder = capture::Recorder::current(); same && recorder) {
    std::vector<SizeFact> facts;
    for (int64_t dim = 0; dim < x.dim(); ++dim) facts.push_back({x, dim, y, dim});
    recorder->sizes().rely_on(facts);
  }
  lua_pushboolean(L, same);
  return 1;
}

/// core.check_data(operation, z, f), core.check_mask(operation, name, mask, f): what C++ hosts are refused too. For
/// operations made of several operators, whose own errors speak of something else; those check again at run time.
int check_data(lua_State* L) {
  const std::string name = operation(L, 1);
  const at::Tensor& f = check_tensor(L, 3);
  flags::check::flags(name.c_str(), f);
  flags::check::data(name.c_str(), check_tensor(L, 2), f);
  return 0;
}

/// core.known_flags(operation, f, the call's other tensor or nil) -> f. A graph holds for flags as wide as these:
/// questions do not check that again.
int known_flags(lua_State* L) {
  if (is_guarded(L, 2) || is_guarded(L, 3))
    throw InputError(operation(L, 1) + ": takes no guarded tensor; write x.flags for its flags, and x.data");
  const at::Tensor& f = check_tensor(L, 2);
  flags::check::known(luaL_checkstring(L, 1), f, test_tensor(L, 3));
  capture::Recorder* recorder = capture::Recorder::current();
  if (recorder && f.dim() == 2 && !recorder->tensors().is_flags(f)) recorder->sizes().read_size(f, 1);
  lua_settop(L, 2);
  return 1;
}

int check_mask(lua_State* L) {
  const std::string name = operation(L, 1);
  const at::Tensor& f = check_tensor(L, 4);
  flags::check::flags(name.c_str(), f);
  flags::check::mask(name.c_str(), luaL_checkstring(L, 2), check_tensor(L, 3), f);
  return 0;
}

/// core.check_record(operation, f, num_slots): flags of so many slots.
int check_record(lua_State* L) {
  const at::Tensor& f = check_tensor(L, 2);
  flags::check::record(luaL_checkstring(L, 1), f, luaL_checkinteger(L, 3), /*policy=*/0);
  if (capture::Recorder* recorder = capture::Recorder::current()) recorder->sizes().read_size(f, 1);
  return 0;
}

int64_t check_in_range(lua_State* L, int index, const std::string& who, const char* what, int64_t low, int64_t high,
                       const char* hint) {
  specialize_number(L, index);
  int is_integer = 0;
  const lua_Integer value = lua_type(L, index) == LUA_TNUMBER ? lua_tointegerx(L, index, &is_integer) : 0;
  if (!is_integer || value < low || value > high)
    throw InputError(who + ": expected " + what + " (" + std::to_string(low) + ".." + std::to_string(high) + hint +
                     "), got " + describe(L, index));
  return value;
}

int check_code(lua_State* L) {
  lua_pushinteger(L, check_in_range(L, 1, operation(L, 2), "an error code", 0, 15, ", as err.NAN"));
  return 1;
}

int check_severity(lua_State* L) {
  lua_pushinteger(L, check_in_range(L, 1, operation(L, 2), "a severity", 0, 3, ", as err.WARN"));
  return 1;
}

int check_domain(lua_State* L) {
  lua_pushinteger(L, check_in_range(L, 1, operation(L, 2), "a domain", 0, 3, ", as ErrorDomain.NUMERIC"));
  return 1;
}

int default_severity_of(lua_State* L) {
  const lua_Integer code = check_in_range(L, 1, "ErrorCode.default_severity", "an error code", 0, 15, "");
  lua_pushinteger(L, to_int(default_severity(static_cast<Code>(code))));
  return 1;
}

int push_code_name(lua_State* L) {
  specialize_number(L, 1);
  const std::string& name = code_name(static_cast<Code>(luaL_checkinteger(L, 1)), context(L).codes);
  lua_pushlstring(L, name.data(), name.size());
  return 1;
}

template <class Enum, const std::string& (*name_of)(Enum)>
int push_name(lua_State* L) {
  specialize_number(L, 1);
  const std::string& name = name_of(static_cast<Enum>(luaL_checkinteger(L, 1)));
  lua_pushlstring(L, name.data(), name.size());
  return 1;
}

int read_only(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  push_read_only(L, 1, luaL_checkstring(L, 2));
  return 1;
}

/// core.strict(table, name) -> table: a field that it does not have is an error, not nil.
int make_strict(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  const std::string complaint = std::string(luaL_checkstring(L, 2)) + " has no";
  lua_settop(L, 1);
  refuse_unknown_fields(L, complaint.c_str());
  return 1;
}

/// core.is_data(tensor, config or nil) -> its dtype is one that flags of the configuration cannot have, and data has
int is_data(lua_State* L) {
  const at::Tensor& tensor = check_tensor(L, 1);
  lua_pushboolean(L, tensor.is_floating_point() && tensor.scalar_type() != error_config(L, 2).flag_dtype);
  return 1;
}

/// core.forwarding(fn, name) -> a C function that calls it, for methods of what scripts hold.
int make_forwarding(lua_State* L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  push_forwarding(L, 1, luaL_checkstring(L, 2));
  return 1;
}

/// core.limited(table, prefix) -> table: its functions refuse more arguments than they have parameters.
int make_limited(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  forward_fields(L, 1, luaL_checkstring(L, 2));
  lua_settop(L, 1);
  return 1;
}

/// core.wrapping(outer, inner, name, ...) -> outer, whose parameters are those of `inner`; the library's function
/// `name` made it of the arguments that follow.
int make_wrapping(lua_State* L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  set_wrapped(L, 1, 2);
  set_made(L, 1, luaL_checkstring(L, 3), 4, lua_gettop(L));
  lua_settop(L, 1);
  return 1;
}

}  // namespace

void add_argument_checks(lua_State* L) {
  static const luaL_Reg functions[] = {{"fail", guarded<fail>},
                                       {"unknown_option", guarded<unknown_option>},
                                       {"is_tensor", guarded<is_tensor>},
                                       {"is_guarded", guarded<is_guarded_tensor>},
                                       {"guarded", guarded<make_guarded>},
                                       {"data_of", guarded<data_of>},
                                       {"flags_of", guarded<guarded_flags>},
                                       {"is_number", guarded<is_number>},
                                       {"is_param", guarded<is_param>},
                                       {"is_bool", guarded<is_bool>},
                                       {"is_callable", guarded<is_callable>},
                                       {"describe", guarded<describe_value>},
                                       {"describe_key", guarded<describe_key>},
                                       {"same_shape", guarded<same_shape>},
                                       {"same_sizes", guarded<same_sizes>},
                                       {"check_data", guarded<check_data>},
                                       {"check_mask", guarded<check_mask>},
                                       {"check_record", guarded<check_record>},
                                       {"known_flags", guarded<known_flags>},
                                       {"code", guarded<check_code>},
                                       {"plain", guarded<plain>},
                                       {"severity", guarded<check_severity>},
                                       {"domain", guarded<check_domain>},
                                       {"default_severity", guarded<default_severity_of>},
                                       {"code_name", guarded<push_code_name>},
                                       {"severity_name", guarded<push_name<Severity, severity_name>>},
                                       {"domain_name", guarded<push_name<Domain, domain_name>>},
                                       {"read_only", guarded<read_only>},
                                       {"strict", guarded<make_strict>},
                                       {"is_data", guarded<is_data>},
                                       {"forwarding", guarded<make_forwarding>},
                                       {"limited", guarded<make_limited>},
                                       {"wrapping", guarded<make_wrapping>},
                                       {nullptr, nullptr}};
  luaL_setfuncs(L, functions, 0);
  push_dtype(L, at::kBool);
  lua_setfield(L, -2, "bool_dtype");
}

void open_flags(lua_State* L) {
  push_core(L);
  add_argument_checks(L);
  add_break_control(L);
  add_nested_regions(L);
  add_open_chains(L);
  add_config(L);
  add_locations(L);
  add_positions(L);
  add_location_trees(L);
  add_tracking(L);
  add_instrument(L);
  add_value_statistics(L);
  add_inspection(L);
  add_control_flow(L);
  lua_pop(L, 1);
}

}  // namespace triage::lua
