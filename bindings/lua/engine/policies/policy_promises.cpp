#include "bindings/lua/engine/policies/policy_promises.h"

#include <algorithm>

#include "bindings/lua/state/table_fields.h"
#include "bindings/lua/values/describe.h"

namespace triage::lua {
namespace {

constexpr const char* expected_value =
    "true, false (the policy does not promise it), or a list of the outputs that it is promised for "
    "(of finite also \"nan\": Inf may leave)";

Law read_law(const std::string& name) {
  std::vector<std::string> names;
  for (const Law law : all_laws) {
    if (name == to_string(law)) return law;
    names.emplace_back(to_string(law));
  }
  throw LoadError("policy: field 'verify': there is no law '" + name + "'" + did_you_mean(close_words(name, names)) +
                  " (laws: answers, finite, unchanged, isolated, order, stable, gradients)");
}

/// The list at the top of the stack.
std::vector<std::string> read_outputs(lua_State* L, const std::string& law, const std::vector<std::string>& known) {
  std::vector<std::string> outputs;
  const std::string where = "policy: field 'verify': '" + law + "': ";
  const auto count = static_cast<lua_Integer>(lua_rawlen(L, -1));
  if (count == 0) throw LoadError(where + "expected " + expected_value + ", got an empty table");
  for (lua_Integer i = 1; i <= count; ++i) {
    if (lua_rawgeti(L, -1, i) != LUA_TSTRING)
      throw LoadError(where + "entry " + std::to_string(i) + ": expected the name of an output, got " +
                      describe(L, -1));
    std::string name = lua_tostring(L, -1);
    lua_pop(L, 1);
    if (!known.empty() && std::find(known.begin(), known.end(), name) == known.end())
      throw LoadError(where + "the policy has no output '" + name + "'" + did_you_mean(close_words(name, known)));
    outputs.push_back(std::move(name));
  }
  return outputs;
}

}  // namespace

std::optional<std::vector<Promise>> read_promises(lua_State* L, int table, const std::vector<std::string>& outputs) {
  const int type = push_own_field(L, table, "verify");
  std::vector<Promise> promises;
  if (type == LUA_TNIL || (type == LUA_TBOOLEAN && !lua_toboolean(L, -1))) return lua_pop(L, 1), std::nullopt;
  if (type != LUA_TTABLE && type != LUA_TBOOLEAN)
    throw LoadError("policy: field 'verify': expected true, or a table of laws such as { unchanged = false }, got " +
                    describe(L, -1));
  const int laws = lua_gettop(L);
  if (type == LUA_TBOOLEAN) return lua_pop(L, 1), promises;
  for (lua_pushnil(L); lua_next(L, laws); lua_pop(L, 1)) {
    if (lua_type(L, -2) != LUA_TSTRING)
      throw LoadError("policy: field 'verify': expected names of laws as keys, got " + describe(L, -2));
    const std::string name = lua_tostring(L, -2);
    Promise promise{read_law(name)};
    if (lua_isboolean(L, -1))
      promise.kept = lua_toboolean(L, -1);
    else if (lua_istable(L, -1))
      promise.outputs = read_outputs(L, name, outputs);
    else if (promise.law == Law::finite && lua_type(L, -1) == LUA_TSTRING && lua_tostring(L, -1) == std::string("nan"))
      promise.only_nan = true;
    else
      throw LoadError("policy: field 'verify': '" + name + "': expected " + expected_value + ", got " +
                      describe(L, -1));
    promises.push_back(std::move(promise));
  }
  lua_pop(L, 1);
  std::sort(promises.begin(), promises.end(), [](const Promise& a, const Promise& b) { return a.law < b.law; });
  return promises;
}

}  // namespace triage::lua
