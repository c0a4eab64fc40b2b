#include "bindings/lua/compile/cache_artifacts.h"

#include "bindings/lua/state/effects.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/values/arguments.h"
#include "runtime/capture/graph_break.h"
#include "runtime/capture/replay/trace_replayer.h"

#include <triage/cache_artifacts.h>

#include <string>
#include <utility>

namespace triage::lua {
namespace {

void push_info(lua_State* L, const CacheInfo& info) {
  const std::pair<const char*, uint64_t> counts[] = {{"kernels", info.kernels},
                                                     {"policies", info.policies},
                                                     {"calls", info.calls},
                                                     {"bytes", info.bytes},
                                                     {"left_out", info.left_out}};
  lua_createtable(L, 0, static_cast<int>(std::size(counts)));
  for (const auto& [name, count] : counts) {
    lua_pushinteger(L, static_cast<lua_Integer>(count));
    lua_setfield(L, -2, name);
  }
}

int with_file(lua_State* L, const char* function, CacheInfo (*act)(const std::filesystem::path& file)) {
  const char* const path = text_argument(L, {1, function, "path"});
  refuse_in_selection(L, std::string("`") + function + "`");
  capture::graph_break(capture::Break::output, std::string("`") + function + "` reaches a file",
                       "Save and load outside of compiled code.");
  capture::end_segment();
  push_info(L, on_behalf_of(function, [&] { return act(path); }));
  return 1;
}

}  // namespace

int save_cache_artifacts_(lua_State* L) { return with_file(L, "triage.save_cache_artifacts", save_cache_artifacts); }

int load_cache_artifacts_(lua_State* L) { return with_file(L, "triage.load_cache_artifacts", load_cache_artifacts); }

}  // namespace triage::lua
