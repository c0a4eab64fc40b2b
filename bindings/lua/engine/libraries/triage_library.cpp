#include "bindings/lua/engine/libraries/triage_library.h"

#include "bindings/lua/backends/lua_backend.h"
#include "bindings/lua/backends/run_graph.h"
#include "bindings/lua/compile/compiled_function.h"
#include "bindings/lua/compile/compiler_config.h"
#include "bindings/lua/compile/recorded_call.h"
#include "bindings/lua/compile/reports/compare.h"
#include "bindings/lua/compile/reports/compile_profiler.h"
#include "bindings/lua/export/export.h"
#include "bindings/lua/tensors/torch.h"
#include "bindings/lua/values/arguments.h"

#include <triage/version.h>

namespace triage::lua {
namespace {

/// triage.compile(fn, {fullgraph, backend, fail_on_backend_error, name})
int compile(lua_State* L) {
  push_compiled(L);
  return 1;
}

int list_backends_(lua_State* L) {
  auto names = backends_of(L);
  lua_createtable(L, static_cast<int>(names.size()), 0);
  for (size_t i = 0; i < names.size(); ++i) {
    lua_pushstring(L, names[i].c_str());
    lua_rawseti(L, -2, static_cast<lua_Integer>(i + 1));
  }
  return 1;
}

int record_call(lua_State* L) {
  const int results = record(L);
  return results < 0 ? lua_error(L) : results;
}

}  // namespace

void push_triage(lua_State* L) {
  open_compiled(L);
  open_explanation(L);
  open_comparison(L);
  open_compile_profiler(L);
  static const LimitedFunction functions[] = {{"compile", guarded<compile>, 2},
                                              {"list_backends", guarded<list_backends_>, 0}};
  lua_newtable(L);
  set_limited(L, "triage.", functions);
  lua_pushcfunction(L, guarded<explain>);  // of any arguments
  lua_setfield(L, -2, "explain");
  lua_pushliteral(L, TRIAGE_VERSION);
  lua_setfield(L, -2, "version");
  push_compiler_config(L);
  lua_setfield(L, -2, "config");
  if (!context(L).sandboxed) {
    add_compiler_control(L);
    static const LimitedFunction registering[] = {{"register_backend", guarded<register_backend_>, 2},
                                                  {"run_graph", guarded<run_graph_program>, 1},
                                                  {"compare", guarded<compare>, 3},
                                                  {"record", guarded<record_call>, 3},
                                                  {"CompileProfiler", guarded<new_compile_profiler>, 0},
                                                  {"compile_times", guarded<compile_times_>, 0}};
    set_limited(L, "triage.", registering);
  }
  add_export(L);
  push_core(L);
  lua_getfield(L, -1, "instrument");
  lua_setfield(L, -3, "instrument");
  lua_getfield(L, -1, "capture");
  for (lua_pushnil(L); lua_next(L, -2);) {  // the functions of scripts/prelude/capture.lua
    lua_pushvalue(L, -2);
    lua_insert(L, -2);
    lua_settable(L, -6);
  }
  lua_pop(L, 2);
}

}  // namespace triage::lua
