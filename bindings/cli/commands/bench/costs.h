#pragma once
#include <ATen/core/Tensor.h>
#include <triage/error.h>
#include <triage/runtime.h>

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bindings/lua/engine/policies/lua_script.h"

/// Where the time of a call goes.
namespace triage::bench {

struct ProfileEntry {
  std::string name;              // of a part: its span
  Source line;                   // of a script
  double micros = 0, share = 0;  // of one call
};

/// Of the script run as it is, the lines that call operators: the time from the end of the operator before to the end
/// of the line's own, so that what Lua does in between counts as well. Dearest first; shares are of the time up to the
/// last operator of a call.
std::vector<ProfileEntry> costs_by_line(lua::LuaScript& script, const std::function<void()>& call, double seconds);

/// Of a captured policy, the parts that its graphs run: fused groups, nodes that ATen computes, operators of the script
/// between breaks. Dearest first; what is left to 1 is the call itself (guards, memory).
std::vector<ProfileEntry> costs_by_part(const std::function<void()>& call, double seconds);

}  // namespace triage::bench
