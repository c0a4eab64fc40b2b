#include "bindings/lua/capture/nested_regions.h"

#include "bindings/lua/capture/user_code.h"
#include "bindings/lua/state/scopes.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/state.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/replay/trace_replayer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string>

namespace triage::lua {
namespace {

using capture::Recorder;

constexpr std::ptrdiff_t most_nested = 8;  // a function that calls itself: deeper calls belong to the one around them

/// The first call in each capture has number 1.
uint32_t next_number(Context& own) {
  if (const Recorder* recorder = Recorder::current();
      recorder && own.region.empty() && own.region_capture != recorder->serial()) {
    own.region_capture = recorder->serial();
    own.region_calls = 0;
  }
  return ++own.region_calls;
}

/// core.call_region(name, fn, ...) -> what fn returns
int call_region(lua_State* L) {
  const char* const name = luaL_checkstring(L, 1);
  Context& own = context(L);
  const bool captured = Recorder::current() || capture::TraceReplayer::current();
  if (!captured || std::count(own.region.begin(), own.region.end(), '/') + 1 >= most_nested) {
    call_for_all(L, lua_gettop(L) - kFunction);
    return lua_gettop(L) - kFunction + 1;
  }
  const uint32_t number = next_number(own);
  push_scope(L) = [&own, around = own.region, calls = own.region_calls] {
    own.region = around;
    own.region_calls = calls;
  };
  own.region += fmt::format("{}{}#{}", own.region.empty() ? "" : "/", name, number);
  own.region_calls = 0;
  return call_in_scope(L, kFunction);
}

/// core.region_name(fn) -> what the calls of a region are named after where the script gives no name
int region_name(lua_State* L) {
  const Source where = definition_of(L, 1).where;
  std::string name =
      lua_isfunction(L, 1) && where.line > 0 ? fmt::format("region_{}", where.line) : function_name(L, 1);
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  lua_pushlstring(L, name.data(), name.size());
  return 1;
}

}  // namespace

void add_nested_regions(lua_State* L) {
  static const luaL_Reg functions[] = {
      {"call_region", guarded<call_region>}, {"region_name", guarded<region_name>}, {nullptr, nullptr}};
  luaL_setfuncs(L, functions, 0);
}

}  // namespace triage::lua
