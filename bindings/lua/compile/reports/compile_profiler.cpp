#include "bindings/lua/compile/reports/compile_profiler.h"

#include "bindings/lua/state/protected.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/state/table_fields.h"
#include "bindings/lua/state/userdata.h"
#include "bindings/lua/values/arguments.h"

#include <triage/compile_times.h>

#include <string>

namespace triage::lua {
namespace {

const char profiler_key = 0;  // its address is the key of the metatable
const char* const times_type = "triage.compile_times";

const CompileProfiler& check_profiler(lua_State* L, const char* function) {
  const CompileProfiler* const profiler = test_compile_profiler(L, 1);
  if (!profiler) wrong_argument(L, {1, function, "self"}, "a CompileProfiler");
  return *profiler;
}

void push_text(lua_State* L, const std::string& text) {
  charge_text(L, text.size());
  lua_pushlstring(L, text.data(), text.size());
}

void set_source(lua_State* L, const Source& source) {
  if (source.file.empty()) return;
  set_text(L, "file", source.file);
  set_integer(L, "line", source.line);
}

/// prof:report()
int report(lua_State* L) {
  push_text(L, check_profiler(L, "CompileProfiler:report").report());
  return 1;
}

/// prof:breaks()
int breaks(lua_State* L) {
  lua_Integer number = 0;
  const auto all = check_profiler(L, "CompileProfiler:breaks").breaks();
  lua_createtable(L, static_cast<int>(all.size()), 0);
  for (const CompileProfiler::Break& one : all) {
    lua_createtable(L, 0, 6);
    set_text(L, "name", one.function);
    set_text(L, "reason", one.reason);
    set_text(L, "hint", one.hint);
    set_source(L, one.source);
    set_integer(L, "count", static_cast<lua_Integer>(one.count));
    lua_rawseti(L, -2, ++number);
  }
  return 1;
}

/// prof:recompiles()
int recompiles(lua_State* L) {
  lua_Integer number = 0;
  const auto all = check_profiler(L, "CompileProfiler:recompiles").recompiles();
  lua_createtable(L, static_cast<int>(all.size()), 0);
  for (const CompileProfiler::Recompile& one : all) {
    lua_createtable(L, 0, 7);
    set_text(L, "name", one.function);
    set_text(L, "guard", one.guard);
    set_text(L, "example", one.example);
    set_text(L, "advice", one.advice);
    set_source(L, one.source);
    set_integer(L, "count", static_cast<lua_Integer>(one.count));
    lua_rawseti(L, -2, ++number);
  }
  return 1;
}

int times_tostring(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_pushliteral(L, "text");
  lua_rawget(L, 1);
  return 1;
}

}  // namespace

const CompileProfiler* test_compile_profiler(lua_State* L, int index) {
  return test_userdata<CompileProfiler>(L, index, &profiler_key);
}

int new_compile_profiler(lua_State* L) {
  push_userdata(L, CompileProfiler(), &profiler_key);
  return 1;
}

int compile_times_(lua_State* L) {
  const std::vector<PhaseTime> times = compile_times();
  lua_createtable(L, static_cast<int>(times.size()), 2);
  for (size_t i = 0; i < times.size(); ++i) {
    lua_createtable(L, 0, 4);
    set_text(L, "phase", times[i].phase);
    set_text(L, "name", times[i].function);
    set_integer(L, "count", static_cast<lua_Integer>(times[i].count));
    lua_pushnumber(L, times[i].seconds);
    lua_setfield(L, -2, "seconds");
    lua_rawseti(L, -2, static_cast<lua_Integer>(i) + 1);
  }
  set_text(L, "text", compile_times_text(times));
  set_text(L, "csv", compile_times_csv(times));
  luaL_setmetatable(L, times_type);
  return 1;
}

void open_compile_profiler(lua_State* L) {
  static const luaL_Reg meta[] = {
      {"__gc", free_userdata<CompileProfiler, profiler_key>}, {"__tostring", guarded<report>}, {nullptr, nullptr}};
  make_metatable(L, &profiler_key, "CompileProfiler", meta);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &profiler_key);
  lua_createtable(L, 0, 3);
  static const LimitedFunction methods[] = {
      {"report", guarded<report>, 1}, {"breaks", guarded<breaks>, 1}, {"recompiles", guarded<recompiles>, 1}};
  set_limited(L, "CompileProfiler:", methods);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);

  luaL_newmetatable(L, times_type);
  lua_pushcfunction(L, guarded<times_tostring>);
  lua_setfield(L, -2, "__tostring");
  lua_pop(L, 1);
}

}  // namespace triage::lua
