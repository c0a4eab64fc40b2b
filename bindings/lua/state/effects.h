#pragma once
#include <runtime/capture/break_kind.h>
#include <lua.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

/// Where running scripts meet the budgets, the epoch and the recorder. Knows nothing of LibTorch, so that the meaning
/// of rewritten code can be tested without it.
namespace triage::lua {

/// Number of the capture now running on this thread, unique in the process; 0 when there is none.
uint64_t current_capture() noexcept;
/// How many branches of IF are being recorded, one inside the other.
int current_branch() noexcept;

/// Number of the outermost branch of natural Lua now running on this thread outside or inside of the capture, unique in
/// the process; 0 when there is none. And how many such branches are running, one inside the other.
uint64_t current_selection() noexcept;
int selection_depth() noexcept;
/// Whether one of them has a mask of shape (N,) as its condition: each sample takes its own branch, and every branch
/// runs.
bool branch_per_sample() noexcept;
/// Raises the error of a write that would happen to all samples.
[[noreturn]] void refuse_write(lua_State* L, const std::string& what, const std::string& hint);

/// The same for `what`, if such a branch runs now.
void refuse_in_selection(lua_State* L, const std::string& what);

/// capture::graph_break: raises a Lua error where it throws.
void break_graph(lua_State* L, capture::Break kind, const std::string& what, const std::string& hint);

/// Does what runs now belong to a function under `triage.allow_in_graph`, which is captured? Then its effect happens.
bool effects_allowed() noexcept;

/// A branch is being left that the batch does not take (unwinding.h): raises the Lua error that goes on with it. Before
/// whatever writes, and behind what catches errors.
void go_on_unwinding(lua_State* L);

/// Did a budget run out? From then on every instruction of Lua code raises, the library's included.
bool has_expired(lua_State* L) noexcept;
/// Is the script at its end: did a budget run out, or is it being unwound? Then nothing of it is closed any more.
bool closes_nothing(lua_State* L) noexcept;

/// A variable or table that guards may have looked at was written.
void bump_epoch(lua_State* L);

/// Does this state run a policy, which is not trusted, rather than a script of the user's own?
bool is_policy(lua_State* L);

/// Charges `bytes` of script memory before they are allocated; raises a Lua error when the budget is used up.
void charge_bytes(lua_State* L, size_t bytes);
/// The same for a string, which has a bound of its own.
void charge_string(lua_State* L, size_t bytes);
/// Raises a Lua error where the value at `index` may not become a key of a table (state.h).
void check_key(lua_State* L, int index);

}  // namespace triage::lua
