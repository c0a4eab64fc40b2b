#include "bindings/lua/engine/policies/policy_results.h"

#include "bindings/lua/capture/user_code.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/state/table_fields.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/guarded.h"
#include "bindings/lua/values/tensor.h"

#include <triage/error.h>

#include <algorithm>

namespace triage::lua {
namespace {

std::string quoted(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "\"" : ", \"") + name + "\"";
  return "{" + list + "}";
}

std::string counted(size_t count) {
  return count == 0 ? "nothing" : std::to_string(count) + (count == 1 ? " value" : " values");
}

/// Where the function of the policy is written; nothing for a module.
Source place_of_run(lua_State* L, const PolicyDefinition& policy) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, policy.run);
  push_wrapped(L, -1);
  Source place;
  if (lua_isfunction(L, -1) && !lua_iscfunction(L, -1)) {
    lua_Debug info{};
    lua_pushvalue(L, -1);
    lua_getinfo(L, ">S", &info);
    place = {info.short_src, info.linedefined};
  }
  lua_pop(L, 2);
  return place;
}

[[noreturn]] void refuse(lua_State* L, const PolicyDefinition& policy, const std::string& message) {
  const Source place = place_of_run(L, policy);
  if (place.file.empty()) throw PolicyError("policy '" + policy.name + "': " + message);
  throw PolicyError(place.file + ":" + std::to_string(place.line) + ": " + message, place);
}

/// The line of an IF that nobody finished; empty for any other value.
std::string place_of_chain(lua_State* L, int index) {
  std::string place;
  if (!lua_istable(L, index) || luaL_getmetafield(L, index, "__name") == LUA_TNIL) return place;
  const bool chain = lua_type(L, -1) == LUA_TSTRING && std::string_view(lua_tostring(L, -1)) == "IF chain";
  lua_pop(L, 1);
  if (!chain) return place;
  lua_pushliteral(L, "place");
  if (lua_rawget(L, index) == LUA_TSTRING) place = lua_tostring(L, -1);
  lua_pop(L, 1);
  return place;
}

void check_count(lua_State* L, size_t count, const PolicyDefinition& policy) {
  const std::vector<std::string>& names = policy.signature.outputs;
  if (names.empty() || count == names.size()) return;
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  refuse(L, policy,
         "`run` returned " + counted(count) + ", and outputs = " + quoted(names) + " names " +
             std::to_string(names.size()) + "; " +
             (count < names.size() ? "return all of them, as in `return " + all + "`"
                                   : "name all of them, or return fewer"));
}

/// What stands where the new state is expected; 0: nothing.
void check_new_state(lua_State* L, int index, const PolicyDefinition& policy) {
  const auto& state = policy.signature.state;
  const std::string& first = state.front().name;
  if (index == 0 || !lua_istable(L, index))
    refuse(L, policy,
           "`run` returned " + (index == 0 ? "nothing" : describe(L, index) + " as its last result") +
               ", and a policy with state returns the new state there, a table of tensors: `return ..., {" + first +
               " = ...}`");
  for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
    const std::string name = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
    if (std::none_of(state.begin(), state.end(), [&](const StateSpec& spec) { return spec.name == name; }))
      refuse(L, policy,
             "the new state has " + (name.empty() ? "an entry without a name" : "the name '" + name + "'") +
                 ", which `state` does not declare");
  }
}

/// In the order of the signature.
void read_new_state(lua_State* L, int index, const PolicyDefinition& policy, std::vector<at::Tensor>& results) {
  for (const StateSpec& spec : policy.signature.state) {
    push_own_field(L, index, spec.name.c_str());
    const at::Tensor* const tensor = test_tensor(L, -1);
    if (!tensor)
      refuse(L, policy,
             "the new state has " + describe(L, -1) + " as '" + spec.name +
                 "'; return every state as a tensor, also one that stays: {" + spec.name + " = s." + spec.name + "}");
    results.push_back(*tensor);
    lua_pop(L, 1);
  }
}

/// A guarded tensor among the results from `first` on is two: the data, and its flags behind it.
void spread_guarded(lua_State* L, int first) {
  for (int i = first; i <= lua_gettop(L); ++i) {
    if (!is_guarded(L, i)) continue;
    reserve(L, 0, "too many results");
    push_flags(L, i);
    replace_by_data(L, i++);
    lua_insert(L, i);
  }
}

}  // namespace

std::string described(lua_State* L, int index) {
  return lua_isnil(L, index) ? "nil" : std::string("a ") + luaL_typename(L, index);
}

std::vector<at::Tensor> read_results(lua_State* L, int first, const PolicyDefinition& policy) {
  std::vector<at::Tensor> results;
  spread_guarded(L, first);
  int count = lua_gettop(L) - first + 1;
  for (int i = first; i < first + count; ++i) {
    const std::string chain = place_of_chain(L, i);
    if (!chain.empty())
      throw PolicyError(chain + ": IF has no ELSE, so it has no value; end it with :ELSE(function() return ... end)");
  }
  const bool has_state = !policy.signature.state.empty();
  const int state = has_state && count > 0 ? first + --count : 0;
  if (has_state) check_new_state(L, state, policy);
  check_count(L, static_cast<size_t>(count), policy);
  const std::vector<std::string>& names = policy.signature.outputs;
  for (int i = 0; i < count; ++i) {
    const at::Tensor* tensor = test_tensor(L, first + i);
    if (!tensor) {
      const std::string name = names.empty() ? "" : " (" + names[static_cast<size_t>(i)] + ")";
      refuse(L, policy,
             "the policy returned " + described(L, first + i) + " as result " + std::to_string(i + 1) + name +
                 "; a policy returns tensors");
    }
    results.push_back(*tensor);
  }
  if (has_state) read_new_state(L, state, policy, results);
  return results;
}

}  // namespace triage::lua
