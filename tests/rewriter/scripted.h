#pragma once
#include <lua.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

/// Lua states for the tests of the rewriter, without LibTorch: tensors do not exist, and what scripts report to the
/// budgets, the epoch and the recorder goes into `Effects`.
namespace triage::lua::testing {

/// Written by the functions of bindings/lua/effects.h that the tests link instead of the real ones.
struct Effects {
  uint64_t capture = 0;  // number of the pretended capture; 0: none
  int branch = 0;
  uint64_t epoch = 0;
  size_t charged = 0;
  size_t budget = SIZE_MAX;  // charging more raises "out of budget"
  bool policy = false;
  bool expired = false;             // a budget ran out: nothing is closed
  std::vector<std::string> breaks;  // what would have broken the graph
};
Effects& effects();

struct CloseState {
  void operator()(lua_State* L) const { lua_close(L); }
};
using LuaState = std::unique_ptr<lua_State, CloseState>;

/// With Lua's libraries; `rewritten`: with ours in place, so that `load` rewrites.
LuaState new_state(bool rewritten);

/// Runs `source`; what it printed, and where it failed a last line "error: message".
std::string run(std::string_view source, const std::string& chunk_name, bool rewritten);

/// Calls the function on top where `status` says that it was loaded; the same result as of `run`.
std::string finish(lua_State* L, int status);

/// What the scripts of a state have printed.
std::string output(lua_State* L);

}  // namespace triage::lua::testing
