#include "bindings/lua/capture/user_code.h"

#include "bindings/lua/state.h"
#include "bindings/lua/tensors/tensor.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace triage::lua {
namespace {

constexpr size_t most_frames = 20;

/// Line `number` of a file, without its indentation; empty where it cannot be read.
std::string source_line(const std::string& path, int number) {
  std::ifstream file(path);
  std::string line;
  for (int i = 0; i < number; ++i)
    if (!std::getline(file, line)) return {};
  const size_t begin = line.find_first_not_of(" \t");
  return begin == std::string::npos ? std::string() : line.substr(begin, 200);
}

std::string stack_of(lua_State* L) {
  std::vector<std::string> frames;  // innermost first
  lua_Debug frame;
  for (int level = 0; lua_getstack(L, level, &frame) && frames.size() < most_frames; ++level) {
    lua_getinfo(L, "Sln", &frame);
    if (frame.currentline <= 0 || std::string_view(frame.source).substr(0, 2) == "=[") continue;
    const std::string where = std::string(frame.short_src) + ":" + std::to_string(frame.currentline);
    std::string text = "  " + where;
    if (frame.name) text += std::string(": in function '") + frame.name + "'";
    text += '\n';
    if (*frame.source == '@')
      if (const std::string line = source_line(frame.source + 1, frame.currentline); !line.empty())
        text += "    " + line + '\n';
    frames.push_back(std::move(text));
  }
  std::reverse(frames.begin(), frames.end());
  std::string all;
  for (const std::string& text : frames) all += text;
  if (!all.empty()) all.pop_back();
  return all;
}

}  // namespace

std::string function_name(lua_State* L, int index) {
  if (!lua_isfunction(L, index)) {
    const int type = luaL_getmetafield(L, index, "__name");
    std::string name = type == LUA_TSTRING ? lua_tostring(L, -1) : "callable";
    if (type != LUA_TNIL) lua_pop(L, 1);
    return name;
  }
  lua_Debug info;
  lua_pushvalue(L, index);
  lua_getinfo(L, ">S", &info);
  if (info.linedefined <= 0) return "a function of C";
  return std::string(info.short_src) + ":" + std::to_string(info.linedefined);
}

void check_callable(lua_State* L, int index, const char* who) {
  if (lua_isfunction(L, index)) return;
  if (luaL_getmetafield(L, index, "__call") == LUA_TNIL)
    throw InputError(std::string(who) + ": expected a function, got " + describe(L, index));
  lua_pop(L, 1);
}

capture::UserCode user_code(lua_State* L) {
  return {[L] { return current_line(L); }, [L] { return stack_of(L); }};
}

}  // namespace triage::lua
