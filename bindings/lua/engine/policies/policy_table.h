#pragma once
#include <triage/front_end.h>
#include <triage/verify.h>

#include <lua.hpp>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace triage::lua {

/// The bytes of the files that a policy's tests name.
using FixtureFiles = std::map<std::string, std::shared_ptr<const std::string>>;

/// What a policy file returned, taken apart. The functions stay in the Lua registry under these references.
struct PolicyDefinition {
  std::string name;
  Signature signature;
  bool fullgraph = false;
  MaskedRows masked_rows = MaskedRows::warn;
  std::optional<OnError> on_error = {};
  OnViolation on_violation = OnViolation::flag;
  std::optional<AccumulationConfig> accumulation = {};
  std::optional<std::vector<Promise>> promises = {};  // of laws; nothing: the policy does not say that it is verified
  int run = LUA_NOREF;
  int tests = LUA_NOREF;  // the list `tests`, where there is one
  FixtureFiles fixtures = {};
};

/// Pushes the function `policy`, which checks the table it is given and marks it.
void push_policy(lua_State* L);

/// Reads the policy at the top of the stack: a function, or what `policy {...}` returned. Raises a Lua error that says
/// what was expected; `path` names the policy where it gives itself no name. Pops it.
PolicyDefinition read_policy(lua_State* L, const std::string& path);

}  // namespace triage::lua
