#include "bindings/lua/flags/flags_library.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/state/table_fields.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/guarded.h"
#include "bindings/lua/values/number.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/flags/forms.h"
#include "runtime/location/owner.h"
#include "runtime/operators/logical_bytes.h"

#include <triage/error.h>
#include <triage/flags.h>

#include <algorithm>
#include <string>
#include <string_view>

/// `flags.*` and `has_err`: what flags say, as Lua values. Reading them is a graph break.
namespace triage::lua {
namespace {

void break_graph(const char* operation, const char* hint) {
  capture::graph_break(capture::Break::reads_value, "`" + std::string(operation) + "` reads the values of a tensor",
                       hint);
}

/// The dtype that flags have: of the config in the options, which are the last argument, else of the global one.
at::ScalarType flag_dtype(lua_State* L) {
  const int last = lua_gettop(L);
  if (last < 2 || !lua_istable(L, last)) return get_config().flag_dtype;
  push_own_field(L, last, "config");
  const auto config = test_error_config(L, -1);
  const at::ScalarType dtype = (config ? *config : get_config()).flag_dtype;
  lua_pop(L, 1);
  return dtype;
}

/// The first argument; of a guarded tensor its flags. Null where it is no tensor.
const at::Tensor* first_tensor(lua_State* L) {
  if (is_guarded(L, 1)) {
    push_tensor(L, flags_of(L, 1));
    lua_replace(L, 1);
  }
  return test_tensor(L, 1);
}

const at::Tensor& flags_argument(lua_State* L, const char* operation) {
  const at::Tensor* flags = first_tensor(L);
  const bool is_data = flags && flags->is_floating_point() && flags->scalar_type() != flag_dtype(L);
  if (!flags || is_data)
    throw InputError(
        std::string(operation) + ": expected a flags tensor as `f`, got " + describe(L, 1) +
        (is_data ? ", which is data: flags of this configuration are " + std::string(c10::toString(flag_dtype(L)))
                 : ""));
  break_graph(operation, "Return the flags, and inspect them after the compiled code.");
  if (const auto& locations = context(L).locations) locations->keep();  // ids become numbers of the script
  return *flags;
}

/// A 0-based sample, negative from the end; default 0.
int64_t sample_argument(lua_State* L, const char* operation) {
  if (lua_isnoneornil(L, 2)) return 0;
  specialize_number(L, 2);
  if (!lua_isinteger(L, 2))
    throw InputError(std::string(operation) + ": expected the 0-based index of a sample as `i`, got " + describe(L, 2));
  return lua_tointeger(L, 2);
}

void push_text(lua_State* L, const std::string& text) {
  charge(L, text.size());
  lua_pushlstring(L, text.data(), text.size());
}

void set_text(lua_State* L, const char* key, const std::string& text) {
  lua_pushlstring(L, text.data(), text.size());
  lua_setfield(L, -2, key);
}

void push_entry(lua_State* L, const flags::UnpackedError& entry) {
  lua_createtable(L, 0, 6);
  set_integer(L, "severity", to_int(entry.severity));
  set_integer(L, "code", to_int(entry.code));
  set_integer(L, "location", entry.location);
  set_text(L, "severity_name", entry.severity_name);
  set_text(L, "code_name", entry.code_name);
  set_text(L, "location_name", entry.location_name);
}

void push_entries(lua_State* L, const std::vector<flags::UnpackedError>& entries) {
  lua_createtable(L, static_cast<int>(entries.size()), 0);
  for (size_t i = 0; i < entries.size(); ++i) {
    push_entry(L, entries[i]);
    lua_rawseti(L, -2, static_cast<lua_Integer>(i) + 1);
  }
}

/// Before the flags of all samples are read, or copied where they do not lie in a row: expanded ones may be any number.
void charge_samples(lua_State* L, const std::string& operation, const at::Tensor& f) {
  constexpr double nanoseconds_of_byte = 0.5, most = 1e18;
  const double bytes = std::min(most, operators::logical_bytes(f));
  charge(L, 0, f.is_cpu() && f.is_contiguous() ? 0 : static_cast<size_t>(bytes), 1 + static_cast<uint64_t>(bytes / 64));
  check_time(L, operation, bytes * nanoseconds_of_byte);
}

/// Before errors become values of C++ and tables of Lua: those of `f`, as many as there are at most.
void charge_entries(lua_State* L, const std::string& operation, const at::Tensor& f) {
  constexpr size_t bytes_of_an_entry = 800;
  charge_samples(L, operation, f);
  charge(L, 0, 0, 1 + static_cast<uint64_t>(f.numel()));
  int64_t errors = 0;
  try {
    errors = err::count_errors(f).sum().item<int64_t>();
  } catch (const std::exception&) {  // no flags: who reads them says so
  }
  charge(L, bytes_of_an_entry * static_cast<size_t>(errors), 0, 10 * static_cast<uint64_t>(errors));
}

int unpack(lua_State* L) {
  const at::Tensor& f = flags_argument(L, "flags.unpack");
  push_entries(L, flags::unpack(f, sample_argument(L, "flags.unpack"), inspect_options(L, 3, "flags.unpack")));
  return 1;
}

int unpack_all(lua_State* L) {
  const at::Tensor& f = flags_argument(L, "flags.unpack_all");
  charge_entries(L, "flags.unpack_all", f);
  const auto samples = flags::unpack_all(f, inspect_options(L, 2, "flags.unpack_all"));
  lua_createtable(L, static_cast<int>(samples.size()), 0);
  for (size_t i = 0; i < samples.size(); ++i) {
    push_entries(L, samples[i]);
    lua_rawseti(L, -2, static_cast<lua_Integer>(i) + 1);
  }
  return 1;
}

int summary(lua_State* L) {
  const at::Tensor& f = flags_argument(L, "flags.summary");
  charge_entries(L, "flags.summary", f);
  const auto counts = flags::summary(f, inspect_options(L, 2, "flags.summary"));
  lua_newtable(L);
  for (const auto& [location, codes] : counts) {
    lua_newtable(L);
    for (const auto& [code, count] : codes) set_integer(L, code.c_str(), count);
    lua_setfield(L, -2, location.c_str());
  }
  return 1;
}

int to_table(lua_State* L) {
  const at::Tensor& f = flags_argument(L, "flags.to_table");
  charge_entries(L, "flags.to_table", f);
  const auto rows = flags::to_table(f, inspect_options(L, 2, "flags.to_table"));
  lua_createtable(L, static_cast<int>(rows.size()), 0);
  for (size_t i = 0; i < rows.size(); ++i) {
    push_entry(L, rows[i].error);
    set_integer(L, "sample", rows[i].sample);
    set_integer(L, "slot", rows[i].slot);
    lua_rawseti(L, -2, static_cast<lua_Integer>(i) + 1);
  }
  return 1;
}

int repr(lua_State* L) {
  const at::Tensor& f = flags_argument(L, "flags.repr");
  charge_samples(L, "flags.repr", f);
  push_text(L, flags::repr(f, inspect_options(L, 2, "flags.repr")));
  return 1;
}

int pretty_print(lua_State* L) {
  const at::Tensor& f = flags_argument(L, "flags.pretty_print");
  const int64_t sample = sample_argument(L, "flags.pretty_print");
  push_text(L, flags::pretty_print(f, sample, inspect_options(L, 3, "flags.pretty_print")));
  return 1;
}

/// has_err(f, options) -> boolean
int has_err(lua_State* L) {
  const at::Tensor* f = first_tensor(L);
  if (!f) throw InputError("has_err: expected a flags tensor as `f`, got " + describe(L, 1));
  const ConfigOptions options{config_option(L, 2, "has_err")};
  flags::KnownForms::add(options.config);
  flags::check::known("has_err", *f);
  break_graph("has_err", "In captured code write IF(HAS(f), ...), or select per sample with err.is_err(f).");
  charge_samples(L, "has_err", *f);
  lua_pushboolean(L, triage::has_err(*f, options));
  return 1;
}

/// core.dynamic_shape(operation): how many rows come out depends on values, which one graph holds only where it is
/// asked to.
int dynamic_shape(lua_State* L) {
  const std::string operation = luaL_checkstring(L, 1);
  const auto* recorder = capture::Recorder::current();
  if (!recorder || !recorder->takes_dynamic_shapes())
    capture::graph_break(capture::Break::dynamic_shape,
                         "`" + operation + "` gives a tensor whose size depends on values",
                         "Keep the batch whole: err.take_ok_p and err.take_err_p fill the other rows; or set "
                         "triage.config.capture_dynamic_output_shape_ops.");
  return 0;
}

/// {MISSING = 4}, at `index`
CodeNames read_codes(lua_State* L, int index, const std::string& operation) {
  if (!lua_istable(L, index))
    throw InputError(operation + ": expected a table of names and codes such as {MISSING = 4} as `codes`, got " +
                     describe(L, index));
  CodeNames codes;
  for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
    const bool is_code = lua_isinteger(L, -1) && lua_tointeger(L, -1) >= 0 && lua_tointeger(L, -1) <= CODE_MASK;
    if (lua_type(L, -2) != LUA_TSTRING || !is_code)
      throw InputError(operation + ": expected names, and codes of 0 to 15, in `codes`, got " + describe(L, -2) +
                       " = " + describe(L, -1));
    codes.push_back({code_from(lua_tointeger(L, -1)), lua_tostring(L, -2)});
  }
  return codes;
}

/// The table of options at `index`. `with_codes`: `codes` is one.
InspectOptions read_options(lua_State* L, int index, const char* operation, bool with_codes) {
  InspectOptions options{{}, context(L).codes};
  if (lua_isnoneornil(L, index)) return options;
  if (!lua_istable(L, index))
    throw InputError(std::string(operation) + ": expected a table of options, got " + describe(L, index));
  for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
    const std::string_view name = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
    if (name == "config")
      options.config = error_config(L, lua_absindex(L, -1));
    else if (name == "codes" && with_codes)
      options.codes = read_codes(L, lua_absindex(L, -1), operation);
    else
      throw InputError(std::string(operation) +
                       (with_codes ? ": the options are config and codes, got " : ": the only option is config, got ") +
                       describe(L, lua_absindex(L, -2)));
  }
  return options;
}

}  // namespace

InspectOptions inspect_options(lua_State* L, int index, const char* operation) {
  return read_options(L, index, operation, /*with_codes=*/true);
}

std::optional<ErrorConfig> config_option(lua_State* L, int index, const char* operation) {
  return read_options(L, index, operation, /*with_codes=*/false).config;
}

void add_inspection(lua_State* L) {
  static const LimitedFunction core_functions[] = {{"has_err", guarded<has_err>, 2},
                                                   {"dynamic_shape", guarded<dynamic_shape>, 1}};
  set_limited(L, "", core_functions);
  static const LimitedFunction functions[] = {
      {"unpack", guarded<unpack>, 3}, {"unpack_all", guarded<unpack_all>, 2},     {"summary", guarded<summary>, 2},
      {"repr", guarded<repr>, 2},     {"pretty_print", guarded<pretty_print>, 3}, {"to_table", guarded<to_table>, 2}};
  lua_newtable(L);
  set_limited(L, "flags.", functions);
  lua_setfield(L, -2, "inspection");
}

}  // namespace triage::lua
