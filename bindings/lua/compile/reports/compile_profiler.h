#pragma once
#include <triage/compile_profiler.h>
#include <lua.hpp>

/// triage.CompileProfiler and triage.compile_times for scripts (triage/compile_profiler.h, triage/compile_times.h).
namespace triage::lua {

/// triage.CompileProfiler(): a profiler, to be given as `backend` of triage.compile.
int new_compile_profiler(lua_State* L);
/// The profiler at `index`; null where that is something else.
const CompileProfiler* test_compile_profiler(lua_State* L, int index);

/// triage.compile_times()
int compile_times_(lua_State* L);

/// Registers their metatables.
void open_compile_profiler(lua_State* L);

}  // namespace triage::lua
