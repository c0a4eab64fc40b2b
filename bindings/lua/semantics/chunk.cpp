#include "bindings/lua/semantics/chunk.h"

#include <string>
#include <utility>
#include <vector>

#include "bindings/lua/rewriter/rewriter.h"
#include "bindings/lua/semantics/intrinsics.h"
#include "bindings/lua/state/effects.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/userdata.h"
#include "runtime/messages/debugging/trace_file.h"

namespace triage::lua {
namespace {

// Their addresses are registry keys.
const char kChunkCount = 0;
const char kNaturalChunks = 0;         // a table: the numbers of those that are natural Lua
const char kGlobals = 0;               // a table: number of a chunk -> the line of each global, then its name
const char kTexts = 0;                 // a table: number of a chunk -> its text
constexpr size_t kBytesPerStep = 200;  // of the syntax tree, for each step of the rewriter, roughly
constexpr int kFunctionBits = 24;      // functions of one chunk
constexpr int64_t kMostTexts = 1'000;  // that are kept
constexpr size_t kLongestText = 1 << 20;
constexpr int64_t kMostChunks = 10'000;  // whose globals are kept: a script may load texts for ever

int64_t next_first_function_id(lua_State* L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &kChunkCount);
  const lua_Integer count = lua_tointeger(L, -1) + 1;
  lua_pop(L, 1);
  lua_pushinteger(L, count);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &kChunkCount);
  return static_cast<int64_t>(count) << kFunctionBits;
}

void note_natural(lua_State* L, int64_t chunk) {
  push_registry_table(L, &kNaturalChunks);
  lua_pushboolean(L, true);
  lua_rawseti(L, -2, chunk);
  lua_pop(L, 1);
}

void note_globals(lua_State* L, int64_t chunk, const std::vector<std::pair<int, std::string>>& globals) {
  if (chunk > kMostChunks) return;
  push_registry_table(L, &kGlobals);
  lua_createtable(L, static_cast<int>(2 * globals.size()), 0);
  lua_Integer place = 0;
  for (const auto& [line, name] : globals) {
    lua_pushinteger(L, line);
    lua_rawseti(L, -2, ++place);
    lua_pushlstring(L, name.data(), name.size());
    lua_rawseti(L, -2, ++place);
  }
  lua_rawseti(L, -2, chunk);
  lua_pop(L, 1);
}

/// A chunk that is named by its own text needs no other.
void note_text(lua_State* L, int64_t chunk, std::string_view text, const char* name) {
  if (chunk > kMostTexts || text.size() > kLongestText || (*name != '@' && *name != '=')) return;
  push_registry_table(L, &kTexts);
  lua_pushlstring(L, text.data(), text.size());
  lua_rawseti(L, -2, chunk);
  lua_pop(L, 1);
}

/// For the trace, under the name by which messages call the file of the main function on top of the stack.
void note_source(lua_State* L, std::string_view text) {
  if (!messages::trace_on() || text.size() > kLongestText) return;
  lua_Debug info;
  lua_pushvalue(L, -1);
  lua_getinfo(L, ">S", &info);
  if (std::string_view(info.source).substr(0, 2) != "=[") messages::trace_source(info.short_src, text);
}

/// Hands a text to Lua's compiler piece by piece, so that the budgets are looked at in between. Lua catches what is
/// raised here.
struct Pieces {
  std::string_view rest;

  static const char* next(lua_State* L, void* user, size_t* size) {
    constexpr size_t most = 512;
    charge_bytes(L, 0);
    auto& own = *static_cast<Pieces*>(user);
    const std::string_view piece = own.rest.substr(0, most);
    own.rest.remove_prefix(piece.size());
    *size = piece.size();
    return piece.data();
  }
};

/// Pushes the rewritten text, or on failure the message.
int push_rewritten(lua_State* L, std::string_view source, const char* chunk_name, bool policy,
                   rewriter::ChunkFacts& facts) {
  std::string text;
  int status = LUA_OK;
  size_t steps = 0;
  const auto charge = [&](size_t more) { charge_bytes(L, kBytesPerStep * (steps += more)); };  // and looks at the clock
  try {
    text = rewriter::rewrite(source, chunk_name, {policy, charge}, &facts);
  } catch (const rewriter::SyntaxError& error) {
    text = error.what();
    status = LUA_ERRSYNTAX;
  } catch (const std::exception& error) {
    text = error.what();
    status = LUA_ERRMEM;
  }
  lua_pushlstring(L, text.data(), text.size());
  return status;
}

}  // namespace

int load_chunk(lua_State* L, std::string_view source, const char* chunk_name, const ChunkOptions& options) {
  const int env = options.env ? lua_absindex(L, options.env) : 0;
  reserve(L, 24, "too many chunks loading");
  constexpr size_t bytes_per_byte = 8;  // rewritten text and bytecode, roughly
  charge_bytes(L, bytes_per_byte * source.size());
  rewriter::ChunkFacts facts;
  if (const int status = push_rewritten(L, source, chunk_name, options.policy, facts); status != LUA_OK) return status;
  Pieces text{{lua_tostring(L, -1), lua_rawlen(L, -1)}};
  const int status = lua_load(L, Pieces::next, &text, chunk_name, "t");
  lua_remove(L, -2);
  if (status != LUA_OK) return status;
  if (env) {
    lua_pushvalue(L, env);
    lua_setupvalue(L, -2, 1);  // a main function always has _ENV as its first upvalue; inner ones share it
  }
  const int64_t first_function_id = next_first_function_id(L);
  const int64_t chunk = first_function_id >> kFunctionBits;
  if (facts.natural) note_natural(L, chunk);
  note_globals(L, chunk, facts.globals);
  note_text(L, chunk, source, chunk_name);
  note_source(L, source);
  lua_call(L, push_intrinsics(L, first_function_id), 1);
  set_function_id(L, -1, first_function_id);
  return LUA_OK;
}

bool has_natural_chunks(lua_State* L) {
  const bool has = lua_rawgetp(L, LUA_REGISTRYINDEX, &kNaturalChunks) != LUA_TNIL;
  lua_pop(L, 1);
  return has;
}

bool is_natural_function(lua_State* L, int index) {
  const int64_t chunk = function_id(L, index) >> kFunctionBits;
  const int top = lua_gettop(L);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &kNaturalChunks);
  const bool natural = lua_istable(L, -1) && lua_rawgeti(L, -1, chunk) != LUA_TNIL;
  lua_settop(L, top);
  return natural;
}

std::string_view chunk_text(lua_State* L, int index) {
  const int64_t id = function_id(L, index);
  if (id == 0) return {};
  const int top = lua_gettop(L);
  std::string_view text;
  push_registry_table(L, &kTexts);
  if (lua_rawgeti(L, -1, id >> kFunctionBits) == LUA_TSTRING) text = {lua_tostring(L, -1), lua_rawlen(L, -1)};
  lua_settop(L, top);
  return text;
}

std::optional<std::set<std::string>> globals_of(lua_State* L, int index) {
  index = lua_absindex(L, index);
  const int64_t id = function_id(L, index);
  const int top = lua_gettop(L);
  push_registry_table(L, &kGlobals);
  if (id == 0 || lua_rawgeti(L, -1, id >> kFunctionBits) != LUA_TTABLE) {
    lua_settop(L, top);
    return std::nullopt;
  }
  const int list = lua_gettop(L);
  lua_Debug info;
  lua_pushvalue(L, index);
  lua_getinfo(L, ">S", &info);
  std::set<std::string> names;
  const auto count = static_cast<lua_Integer>(lua_rawlen(L, list));
  for (lua_Integer i = 1; i < count; i += 2) {
    lua_rawgeti(L, list, i);
    const lua_Integer line = lua_tointeger(L, -1);
    lua_pop(L, 1);
    if (line > info.lastlinedefined) break;
    if (line < info.linedefined) continue;
    lua_rawgeti(L, list, i + 1);
    names.emplace(lua_tostring(L, -1));
    lua_pop(L, 1);
  }
  lua_settop(L, top);
  return names;
}

}  // namespace triage::lua
