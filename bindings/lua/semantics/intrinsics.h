#pragma once
#include <lua.hpp>

#include <cstdint>

/// The functions that rewritten code calls (bindings/lua/rewriter): Lua's own meaning and messages on Lua values,
/// PyTorch's on tensors. Errors name the script's line. Metamethods may yield, as they may in plain Lua.
///
/// `position` arguments hold the column, plus 65536 for every line that the operator stands below the line of the call.
namespace triage::lua {

/// Pushes the intrinsics, in the order of rewriter::intrinsics(), and returns how many. Function ids of the chunk they
/// are handed to are `first_function_id` plus the function's number in the chunk.
int push_intrinsics(lua_State* L, int64_t first_function_id);

/// Identity of the source of a Lua function: closures of one `function` expression have the same. 0 for C functions.
int64_t function_id(lua_State* L, int index);
void set_function_id(lua_State* L, int index, int64_t id);

/// A table or function that was made during the running capture: writes to it are no side effects. For C functions that
/// return new tables.
void mark_created(lua_State* L, int index);

/// The table at `index` is about to be written: bumps the epoch; breaks the graph where the table is older than the
/// capture.
void note_table_write(lua_State* L, int index);

/// `position` as "file:line:column: " (file and line of the function at `level`).
void push_where(lua_State* L, int level, lua_Integer position, bool with_column);

/// Is the function running at `level` an intrinsic? Those are no levels of the script.
bool is_intrinsic(lua_State* L, lua_Debug* frame);

/// (a, b): whether a < b, as a condition. For functions of Lua's library that compare by themselves.
int less_than(lua_State* L);

/// The value at the top as a condition, where it may be a tensor; replaced by what decides (see push_truth). Messages
/// name the line of the function at `level`.
void test_top(lua_State* L, int level);

}  // namespace triage::lua
