#include "bindings/lua/capture/open_chains.h"

#include "bindings/lua/state/state.h"
#include "bindings/lua/state/userdata.h"
#include "runtime/capture/recording/recorder.h"

#include <triage/error.h>

#include <string>

namespace triage::lua {
namespace {

using capture::Recorder;

const char open_chains = 0;  // registry key: its address; a list of the lines of chains that wait for ELSE, false: done

/// core.open_chain([place]) -> place, which is "file:line" of the script, nil where there is none; ticket, false where
/// nothing is captured
int open_chain(lua_State* L) {
  lua_settop(L, 1);
  const Source line = current_line(L);
  const std::string place = lua_isstring(L, 1) ? lua_tostring(L, 1) : line.file + ":" + std::to_string(line.line);
  lua_settop(L, 0);
  line.file.empty() ? lua_pushnil(L) : void(lua_pushlstring(L, place.data(), place.size()));
  if (!Recorder::current()) {
    lua_pushboolean(L, 0);
    return 2;
  }
  push_registry_table(L, &open_chains);
  const auto ticket = static_cast<lua_Integer>(lua_rawlen(L, -1)) + 1;
  lua_pushlstring(L, place.data(), place.size());
  lua_rawseti(L, -2, ticket);
  lua_pushinteger(L, ticket);
  lua_replace(L, -2);
  return 2;
}

int close_chain(lua_State* L) {
  if (lua_isnoneornil(L, 1)) return 0;
  const lua_Integer ticket = luaL_checkinteger(L, 1);
  push_registry_table(L, &open_chains);
  if (lua_rawgeti(L, -1, ticket) != LUA_TSTRING) return 0;  // forgotten
  lua_pushboolean(L, 0);
  lua_rawseti(L, -3, ticket);
  return 0;
}

}  // namespace

void check_finished_chains(lua_State* L) {
  push_registry_table(L, &open_chains);
  std::string unfinished;
  for (lua_Integer i = 1; i <= static_cast<lua_Integer>(lua_rawlen(L, -1)) && unfinished.empty(); ++i) {
    if (lua_rawgeti(L, -1, i) == LUA_TSTRING) unfinished = lua_tostring(L, -1);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  forget_chains(L);
  if (!unfinished.empty())
    throw PolicyError(unfinished +
                      ": IF was never finished, so it selects nothing; end the chain with :ELSE(function() ... end)");
}

void forget_chains(lua_State* L) {
  lua_pushnil(L);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &open_chains);
}

namespace {

size_t count_chains(lua_State* L) {
  const size_t count = lua_rawgetp(L, LUA_REGISTRYINDEX, &open_chains) == LUA_TTABLE ? lua_rawlen(L, -1) : 0;
  lua_pop(L, 1);
  return count;
}

/// Those begun after the first `kept`.
void forget_chains(lua_State* L, size_t kept) {
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &open_chains) == LUA_TTABLE)
    for (size_t last = lua_rawlen(L, -1); last > kept; --last) {
      lua_pushnil(L);
      lua_rawseti(L, -2, static_cast<lua_Integer>(last));
    }
  lua_pop(L, 1);
}

}  // namespace

CaughtErrors::CaughtErrors(lua_State* L) : L_(L), chains_(count_chains(L)) {
  if (const auto* recorder = capture::Recorder::current()) {
    recorder_ = recorder->serial();
    branches_ = recorder->batch_branches();
  }
}

void CaughtErrors::note() const {
  forget_chains(L_, chains_);
  auto* const recorder = capture::Recorder::current();
  if (recorder && recorder->serial() == recorder_ && recorder->batch_branches() > branches_)
    recorder->note_error("it was raised after a condition of the batch");
}

void add_open_chains(lua_State* L) {
  static const luaL_Reg functions[] = {
      {"open_chain", guarded<open_chain>}, {"close_chain", guarded<close_chain>}, {nullptr, nullptr}};
  luaL_setfuncs(L, functions, 0);
}

}  // namespace triage::lua
