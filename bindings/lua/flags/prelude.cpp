#include "bindings/lua/flags/prelude.h"

#include "bindings/lua/tensors/torch.h"

#include <string>

namespace triage::lua {

void open_prelude(lua_State* L) {
  for (const PreludeFile& file : prelude_files()) {
    // A name that begins with "=[" marks lines of ours: messages then name the line of the script that called.
    const std::string chunk_name = "=[triage " + std::string(file.name) + "]";
    if (luaL_loadbufferx(L, file.source.data(), file.source.size(), chunk_name.c_str(), "t") != LUA_OK) lua_error(L);
    push_core(L);
    lua_call(L, 1, 0);
  }
}

}  // namespace triage::lua
