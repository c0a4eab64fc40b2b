#include "tests/rewriter/scripted.h"

#include <cstdlib>

#include "bindings/lua/semantics/base_library.h"
#include "bindings/lua/semantics/chunk.h"
#include "bindings/lua/semantics/tensor_semantics.h"
#include "bindings/lua/state/effects.h"
#include "runtime/messages/debugging/trace_file.h"

namespace triage::messages {

bool read_trace_environment() noexcept { return false; }
void trace_source(const std::string&, std::string_view) noexcept {}

}  // namespace triage::messages

namespace triage::lua {

uint64_t current_capture() noexcept { return testing::effects().capture; }
int current_branch() noexcept { return testing::effects().branch; }
uint64_t current_selection() noexcept { return 0; }
int selection_depth() noexcept { return 0; }
bool branch_per_sample() noexcept { return false; }
void refuse_in_selection(lua_State*, const std::string&) {}
void refuse_write(lua_State* L, const std::string& what, const std::string&) {
  luaL_error(L, "%s", what.c_str());
  std::abort();  // it raised
}
void break_graph(lua_State*, capture::Break, const std::string& what, const std::string&) {
  testing::effects().breaks.push_back(what);
}
bool effects_allowed() noexcept { return false; }
void go_on_unwinding(lua_State*) {}
bool has_expired(lua_State*) noexcept { return testing::effects().expired; }
bool closes_nothing(lua_State* L) noexcept { return has_expired(L); }
void bump_epoch(lua_State*) { testing::effects().epoch++; }
bool is_policy(lua_State*) { return testing::effects().policy; }
void charge_bytes(lua_State* L, size_t bytes) {
  testing::effects().charged += bytes;
  if (bytes > testing::effects().budget) luaL_error(L, "out of budget");
}

void charge_string(lua_State* L, size_t bytes) { charge_bytes(L, bytes); }
void check_key(lua_State* L, int index) {
  if (lua_type(L, index) == LUA_TSTRING && std::string_view(lua_tostring(L, index)) == "refused")
    luaL_error(L, "a refused key");
}

// There are no tensors here.
bool is_tensor(lua_State*, int) { return false; }
bool is_mask(lua_State*, int) { return false; }
bool is_number_tensor(lua_State*, int) { return false; }
bool has_one_element(lua_State*, int) { return false; }
void replace_by_mask(lua_State* L, int, const char*) { luaL_error(L, "no tensor to test"); }
void push_library_function(lua_State* L, const char* name) { luaL_error(L, "no library with '%s'", name); }
const char* symbolic_kind(lua_State*, int) { return nullptr; }
bool push_math(lua_State*, const char*) { return false; }
void specialize(lua_State*, int) {}
void compare_tensors(lua_State* L, const char* method) { luaL_error(L, "no tensor to compare by '%s'", method); }
void push_truth(lua_State* L, int, const char*) { luaL_error(L, "no tensor to test"); }
bool has_flags(lua_State*, int) { return false; }

int iterate_rows(lua_State* L) { return luaL_error(L, "no tensor to iterate"); }
void replace_by_item(lua_State* L, int) { luaL_error(L, "no tensor to read"); }

namespace testing {
namespace {

const char kOutput = 0;  // its address is the registry key

void append_output(lua_State* L) {  // the text on top
  lua_rawgetp(L, LUA_REGISTRYINDEX, &kOutput);
  lua_insert(L, -2);
  lua_concat(L, 2);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &kOutput);
}

int print(lua_State* L) {
  const int count = lua_gettop(L);
  std::string line;
  for (int i = 1; i <= count; i++) {
    size_t size = 0;
    const char* const text = luaL_tolstring(L, i, &size);
    line += (i > 1 ? "\t" : "") + std::string(text, size);
  }
  lua_pushlstring(L, (line + "\n").data(), line.size() + 1);
  append_output(L);
  return 0;
}

int load_plain(lua_State* L, std::string_view source, const std::string& chunk_name) {
  return luaL_loadbufferx(L, source.data(), source.size(), chunk_name.c_str(), "t");
}

}  // namespace

Effects& effects() {
  static Effects instance;
  return instance;
}

LuaState new_state(bool rewritten) {
  LuaState state(luaL_newstate());
  lua_State* const L = state.get();
  luaL_openlibs(L);
  lua_pushliteral(L, "");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &kOutput);
  lua_register(L, "print", print);
  if (rewritten) open_base_library(L);
  return state;
}

std::string output(lua_State* L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &kOutput);
  std::string text(lua_tostring(L, -1), lua_rawlen(L, -1));
  lua_pop(L, 1);
  return text;
}

std::string finish(lua_State* L, int status) {
  if (status == LUA_OK) status = lua_pcall(L, 0, 0, 0);
  std::string text = output(L);
  if (status != LUA_OK) text += std::string("error: ") + luaL_tolstring(L, -1, nullptr) + "\n";
  return text;
}

std::string run(std::string_view source, const std::string& chunk_name, bool rewritten) {
  effects() = Effects();
  const LuaState state = new_state(rewritten);
  lua_State* const L = state.get();
  return finish(L,
                rewritten ? load_chunk(L, source, chunk_name.c_str(), {0, false}) : load_plain(L, source, chunk_name));
}

}  // namespace testing
}  // namespace triage::lua
