#include "bindings/lua/sandbox/environment.h"

#include "bindings/lua/values/read_only.h"

namespace triage::lua {
namespace {

// Absent on purpose: os io debug package require dofile loadfile coroutine warn, and what is marked so in the API:
// set_config.
constexpr const char* allowed_globals[] = {
    // Lua
    "_VERSION", "assert", "collectgarbage", "error", "getmetatable", "ipairs", "load", "next", "pairs", "pcall",
    "print", "rawequal", "rawget", "rawlen", "rawset", "select", "setmetatable", "tonumber", "tostring", "type",
    "xpcall",
    // tensors and samples
    "torch", "nn", "Tensor", "err", "flags", "find", "push", "fix", "has_err", "flag_nan", "flag_inf",
    "flag_nan_and_inf", "flag_oob_indices", "guard", "unguard", "IF", "WHERE", "IS", "HAS", "AND", "OR", "NOT",
    // types and results
    "Dim", "Broadcast", "float16_t", "bfloat16_t", "float32_t", "float64_t", "int8_t", "int16_t", "int32_t", "int64_t",
    "uint8_t", "bool_t", "floating_t", "integer_t", "any_t", "error_t", "tensorcheck", "type_cast", "ValidationError",
    "DimensionMismatchError", "DTypeMismatchError", "DeviceMismatchError", "InvalidParameterError", "TypeMismatchError",
    "InvalidReturnTypeError", "Ok", "Err", "as_result", "as_exception", "unwrap",
    // locations, configuration
    "ErrorLocation", "LocationTree", "WeightedLocationTree", "tracked", "CONFIG", "ErrorConfig", "AccumulationConfig",
    "get_config", "Priority", "Order", "Dedupe", "Severity", "ErrorCode", "ErrorDomain", "SLOT_BITS", "SLOT_MASK",
    "SLOTS_PER_WORD", "SEVERITY_SHIFT", "SEVERITY_BITS", "SEVERITY_MASK", "CODE_SHIFT", "CODE_BITS", "CODE_MASK",
    "LOCATION_SHIFT", "LOCATION_BITS", "LOCATION_MASK"};

struct AllowedLibrary {
  const char* name;
  const char* const* functions;
};

constexpr const char* string_functions[] = {"byte",    "char",  "find",   "format", "gmatch",   "gsub",
                                            "len",     "lower", "match",  "pack",   "packsize", "rep",
                                            "reverse", "sub",   "unpack", "upper",  nullptr};
constexpr const char* table_functions[] = {"concat", "insert", "move", "pack", "remove", "sort", "unpack", nullptr};
constexpr const char* math_functions[] = {"abs",  "acos",       "asin",      "atan", "ceil", "cos",    "deg",
                                          "exp",  "floor",      "fmod",      "huge", "log",  "max",    "maxinteger",
                                          "min",  "mininteger", "modf",      "pi",   "rad",  "random", "sin",
                                          "sqrt", "tan",        "tointeger", "type", "ult",  nullptr};
constexpr const char* utf8_functions[] = {"char", "charpattern", "codepoint", "codes", "len", "offset", nullptr};
constexpr AllowedLibrary libraries[] = {
    {"string", string_functions}, {"table", table_functions}, {"math", math_functions}, {"utf8", utf8_functions}};

/// Fields of `torch` that policies must not reach: seeds, threads, files, settings of the process.
constexpr const char* forbidden_torch[] = {"manual_seed",
                                           "seed",
                                           "save",
                                           "load",
                                           "set_num_threads",
                                           "set_default_dtype",
                                           "set_num_interop_threads",
                                           "use_deterministic_algorithms",
                                           "set_rng_state",
                                           "initial_seed",
                                           "get_rng_state",
                                           "set_default_device",
                                           "from_file",
                                           "set_grad_enabled"};

/// Adds the functions of one library of Lua that the allow-list names, as a read-only view, to the table at the top.
void add_library(lua_State* L, const AllowedLibrary& library) {
  lua_getglobal(L, library.name);
  lua_newtable(L);
  for (const char* const* name = library.functions; *name; ++name) {
    lua_getfield(L, -2, *name);
    lua_setfield(L, -2, *name);
  }
  push_read_only(L, -1, library.name);
  lua_setfield(L, -4, library.name);
  lua_pop(L, 2);
}

void add_global(lua_State* L, const char* name) {
  const int type = lua_getglobal(L, name);
  if (type == LUA_TTABLE) {
    push_read_only(L, -1, name);
    lua_remove(L, -2);
  }
  if (type == LUA_TNIL)
    lua_pop(L, 1);
  else
    lua_setfield(L, -2, name);
}

void remove_forbidden(lua_State* L) {
  if (lua_getglobal(L, "torch") == LUA_TTABLE) {
    for (const char* name : forbidden_torch) {
      lua_pushstring(L, name);
      lua_pushnil(L);
      lua_rawset(L, -3);
    }
  }
  lua_pop(L, 1);
}

/// Methods of strings come from the same allowed functions, and nothing can be reached through their metatable.
void close_string_metatable(lua_State* L, int environment) {
  lua_pushliteral(L, "");
  if (lua_getmetatable(L, -1)) {
    lua_getfield(L, environment, "string");
    lua_setfield(L, -2, "__index");
    lua_pushliteral(L, "string");
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
}

}  // namespace

void push_policy_environment(lua_State* L) {
  remove_forbidden(L);
  lua_newtable(L);
  const int environment = lua_gettop(L);
  for (const char* name : allowed_globals) add_global(L, name);
  for (const AllowedLibrary& library : libraries) add_library(L, library);
  lua_pushvalue(L, environment);
  lua_setfield(L, environment, "_G");
  close_string_metatable(L, environment);
}

}  // namespace triage::lua
