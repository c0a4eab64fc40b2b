#pragma once
#include <lua.hpp>

#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace triage::lua {

struct ChunkOptions {
  int env = 0;         // stack index of the table that becomes the chunk's _ENV; 0: the globals
  bool policy = true;  // refuse what policies may not write
};

/// Loads Lua source: rewritten (bindings/lua/rewriter), text only. `chunk_name` as for lua_load: "@file", "=name", or
/// the text itself. Returns LUA_OK with the main function on the stack; else an error status with the message on the
/// stack.
int load_chunk(lua_State* L, std::string_view source, const char* chunk_name, const ChunkOptions& options = {});

/// Was any chunk of natural Lua loaded?
bool has_natural_chunks(lua_State* L);

/// Is the function at `index` from a chunk of natural Lua (rewriter/natural_edits.h)?
bool is_natural_function(lua_State* L, int index);

/// The text that the Lua function at `index` was loaded from, for messages to quote: the file may have changed since.
/// Empty where it is not kept. Lives as long as the state.
std::string_view chunk_text(lua_State* L, int index);

/// The globals that stand in the text of the Lua function at `index`, functions inside of it included (and perhaps some
/// of what stands on its first and last line). Nothing where that is not known: its text was not rewritten, say.
std::optional<std::set<std::string>> globals_of(lua_State* L, int index);

}  // namespace triage::lua
