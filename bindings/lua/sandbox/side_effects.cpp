#include "bindings/lua/sandbox/side_effects.h"

#include "bindings/lua/loading/effects.h"
#include "bindings/lua/loading/wrapping.h"
#include "bindings/lua/sandbox/library.h"
#include "bindings/lua/state.h"

#include <cstdio>
#include <string>

namespace triage::lua {
namespace {

int print(lua_State* L) {
  std::string line;
  const int count = lua_gettop(L);
  for (int i = 1; i <= count; ++i) {
    if (context(L).sandboxed)
      push_text_without_address(L, i);
    else
      luaL_tolstring(L, i, nullptr);
    size_t size = 0;
    const char* text = lua_tolstring(L, -1, &size);
    charge(L, line.size() + size, 0, 1 + size / 16);
    if (i > 1) line += '\t';
    line.append(text, size);
    lua_pop(L, 1);
  }
  break_graph(L, "`print` writes to the outside",
              "Print before or after the compiled code, or look at what it returns.");
  if (context(L).print) {
    context(L).print(line);
  } else {
    line += '\n';
    std::fwrite(line.data(), 1, line.size(), stdout);
    std::fflush(stdout);
  }
  return 0;
}

int io_write(lua_State* L) {
  break_graph(L, "`io.write` writes to the outside",
              "Write before or after the compiled code, or look at what it returns.");
  return run_original(L);
}

int math_random(lua_State* L) {
  break_graph(L, "`math.random` draws a number that the graph would repeat for ever",
              "Draw in tensors: torch.rand and its like.");
  return run_original(L);
}

void wrap(lua_State* L, const char* library, const char* name, lua_CFunction function) {
  if (lua_getglobal(L, library) == LUA_TTABLE) wrap_library_function(L, name, function);
  lua_pop(L, 1);
}

}  // namespace

void open_side_effects(lua_State* L) {
  lua_pushcfunction(L, guarded<print>);
  lua_setglobal(L, "print");
  wrap(L, "io", "write", guarded<io_write>);
  wrap(L, "math", "random", guarded<math_random>);
}

}  // namespace triage::lua
