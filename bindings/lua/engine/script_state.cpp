#include "bindings/lua/engine/script_state.h"

#include "bindings/lua/compile/closures/closure_state.h"
#include "bindings/lua/engine/libraries/flag_files.h"
#include "bindings/lua/engine/libraries/torch_files.h"
#include "bindings/lua/engine/libraries/triage_library.h"
#include "bindings/lua/engine/policies/policy_modules.h"
#include "bindings/lua/engine/policies/policy_table.h"
#include "bindings/lua/semantics/chunk.h"
#include "bindings/lua/state/protected.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/values/read_only.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/files/disk.h"
#include "runtime/location/owner.h"

namespace triage::lua {
namespace {

/// A function or module of the host: tensors in, tensors out.
int call_host(lua_State* L) {
  const auto& function = *static_cast<const HostFunction*>(lua_touserdata(L, lua_upvalueindex(1)));
  std::vector<at::Tensor> arguments;
  for (int i = 1; i <= lua_gettop(L); ++i) arguments.push_back(check_tensor(L, i));
  if (const auto& locations = context(L).locations) locations->keep();  // there may be flags among them
  const std::vector<at::Tensor> results = call_host_function(function, arguments);
  reserve(L, results.size(), "too many results");
  for (const at::Tensor& result : results) push_tensor(L, result);
  return static_cast<int>(results.size());
}

int free_host_function(lua_State* L) {
  static_cast<HostFunction*>(lua_touserdata(L, 1))->~HostFunction();
  lua_pushnil(L);
  lua_setmetatable(L, 1);
  return 0;
}

void push_host_function(lua_State* L, const HostFunction& function) {
  new (lua_newuserdatauv(L, sizeof(HostFunction), 0)) HostFunction(function);
  lua_newtable(L);
  lua_pushcfunction(L, guarded<free_host_function>);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  lua_pushcclosure(L, guarded<call_host>, 1);
}

/// A script would find the host's value in the place of a function or library that it knows.
void check_free(ScriptState& state, lua_State* L, const std::string& name) {
  state.push_environment();
  lua_pushlstring(L, name.data(), name.size());
  const bool is_free = lua_rawget(L, -2) == LUA_TNIL;
  lua_pop(L, 2);
  if (!is_free)
    throw LoadError("the host gives '" + name +
                    "', and every script has a global of that name; give it another name (Runtime::define, "
                    "define_tensor, define_module)");
}

/// Takes the value at the top. "dist.agree" becomes a field of the table that `tables` has, or gets, under "dist".
void place_given(ScriptState& state, lua_State* L, int tables, const std::string& name) {
  const size_t dot = name.find('.');
  if (dot == std::string::npos) {
    check_free(state, L, name);
    state.define(name.c_str());
    return;
  }
  const std::string table = name.substr(0, dot);
  if (lua_getfield(L, tables, table.c_str()) != LUA_TTABLE) {
    lua_pop(L, 1);
    lua_newtable(L);
    refuse_unknown_fields(L, (table + " has no").c_str());
    lua_pushvalue(L, -1);
    lua_setfield(L, tables, table.c_str());
  }
  lua_insert(L, -2);
  lua_setfield(L, -2, name.substr(dot + 1).c_str());
  lua_pop(L, 1);
}

}  // namespace

std::string not_lua(std::string_view source) {
  const std::string what = files::describe_content(files::InputFile(source));
  if (what == "a text file") return "";
  const bool is_text = what.ends_with(" text") && what.starts_with("UTF-");
  return "; the file looks like " + what + ", not like a script in Lua" + (is_text ? ": save it as UTF-8" : "");
}

std::unique_ptr<ScriptState> make_script_state(StateOptions options, const std::vector<HostFunction>& host_functions,
                                               const std::vector<HostTensor>& host_tensors) {
  auto state = std::make_unique<ScriptState>(std::move(options));
  in_protected_call(state->lua(), [&](lua_State* L) {
    push_policy(L);
    state->define("policy");
    push_triage(L);
    state->define("triage");
    if (state->context().sandboxed) {
      add_policy_files(*state);
    } else {
      add_torch_files(L);
      add_flag_files(L);
    }
    lua_newtable(L);
    const int tables = lua_gettop(L);
    for (const auto& function : host_functions) {
      push_host_function(L, function);
      place_given(*state, L, tables, function.name);
    }
    for (const HostTensor& given : host_tensors) {
      push_tensor(L, given.tensor);
      place_given(*state, L, tables, given.name);
    }
    for (lua_pushnil(L); lua_next(L, tables);) {
      const std::string name = lua_tostring(L, -2);
      place_given(*state, L, tables, name);
    }
    lua_remove(L, tables);
    state->push_environment();
    mark_libraries(L);
  });
  return state;
}

void push_chunk(ScriptState& state, std::string_view source, const std::string& chunk_name) {
  lua_State* L = state.lua();
  state.push_environment();
  ChunkOptions options;
  options.env = lua_gettop(L);
  options.policy = state.context().sandboxed;
  if (load_chunk(L, source, chunk_name.c_str(), options) != LUA_OK) {
    if (const std::string what = not_lua(source); !what.empty() && lua_type(L, -1) == LUA_TSTRING)
      lua_pushfstring(L, "%s%s", lua_tostring(L, -1), what.c_str());
    lua_error(L);
  }
  lua_remove(L, -2);
}

}  // namespace triage::lua
