#pragma once
#include <lua.hpp>

#include <cstddef>
#include <cstdint>

/// Chains of IF that a script began while capturing and did not end with ELSE yet: one that is never ended selects
/// nothing.
namespace triage::lua {

/// Adds `open_chain` and `close_chain`, for scripts/prelude/control_flow.lua, to the table on top of the stack.
void add_open_chains(lua_State* L);

/// Throws an error that names the line of the first, and forgets them; `forget_chains` only forgets them.
void check_finished_chains(lua_State* L);
void forget_chains(lua_State* L);

/// Around a call whose error goes no further (pcall, a coroutine, a branch that the batch does not take).
class CaughtErrors {
 public:
  explicit CaughtErrors(lua_State* L);
  /// There was one. It closes the chains that the call opened, and is a graph break where the call went into a branch
  /// on a condition of the batch: other batches may not raise it.
  void note() const;

 private:
  lua_State* L_;
  size_t chains_;
  uint64_t recorder_ = 0;
  size_t branches_ = 0;
};

}  // namespace triage::lua
