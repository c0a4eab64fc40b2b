#include "bindings/lua/capture/user_code.h"

#include "bindings/lua/semantics/chunk.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/state/userdata.h"
#include "runtime/messages/debugging/trace_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace triage::lua {
namespace {

const char wrapped = 0;  // its address: registry key of a weak table, from each function to the one it stands for
const char made = 0;     // the same, to the call that made it
constexpr size_t most_frames = 20;

/// `count` lines from line `number` on, as one and without their indentation; empty where there are none.
std::string source_lines(std::istream& text, int number, int count) {
  std::string lines, line;
  for (int i = 1; i < number + count && std::getline(text, line); ++i) {
    const size_t begin = line.find_first_not_of(" \t");
    if (i < number || begin == std::string::npos) continue;
    lines += (lines.empty() ? "" : " ") + line.substr(begin, 200);
  }
  return lines;
}

/// Of the script that the function on top of the stack is from: as it was loaded, where that is known, else as its file
/// is now. `source` is lua_Debug's.
std::string source_lines(lua_State* L, const char* source, int number, int count) {
  std::string_view text = chunk_text(L, -1);
  if (*source != '@' && *source != '=') text = source;  // a chunk that is named by its text
  if (!text.empty()) {
    std::istringstream stream{std::string(text)};
    return source_lines(stream, number, count);
  }
  if (*source != '@' || context(L).sandboxed) return {};  // `load` takes any name, and a policy reads no files
  std::ifstream file(source + 1);
  return source_lines(file, number, count);
}

/// A place of a script as messages quote it: "  file:line: in function 'name'", and on the next line what stands there.
/// The function is on top of the stack.
std::string quoted(lua_State* L, const lua_Debug& frame, int line, const char* name) {
  std::string text = std::string("  ") + frame.short_src + ":" + std::to_string(line);
  if (name) text += std::string(": in function '") + name + "'";
  const std::string source = source_lines(L, frame.source, line, 1);
  return source.empty() ? text : text + "\n    " + source;
}

/// Whether the function at `level` is one of a script; then it is pushed, and `frame` told ("Sln").
bool push_script_function(lua_State* L, int level, lua_Debug& frame) {
  if (!lua_getstack(L, level, &frame)) return false;
  lua_getinfo(L, "Sln", &frame);
  if (frame.currentline <= 0 || std::string_view(frame.source).substr(0, 2) == "=[") return false;
  lua_getinfo(L, "f", &frame);
  return true;
}

/// The innermost from `level` on.
bool push_script_function_from(lua_State* L, int level, lua_Debug& frame) {
  for (; lua_getstack(L, level, &frame); ++level)
    if (push_script_function(L, level, frame)) return true;
  return false;
}

std::string stack_of(lua_State* L) {
  std::vector<std::string> frames;  // innermost first
  lua_Debug frame;
  for (int level = 0; lua_getstack(L, level, &frame) && frames.size() < most_frames; ++level) {
    if (!push_script_function(L, level, frame)) continue;
    frames.push_back(quoted(L, frame, frame.currentline, frame.name));
    lua_pop(L, 1);
  }
  std::reverse(frames.begin(), frames.end());
  return fmt::format("{}", fmt::join(frames, "\n"));
}

/// Where the arguments of the next call of `name` begin in `line`.
size_t find_call(const std::string& line, const std::string& name, size_t from) {
  const std::string call = name + "(";
  for (size_t at = line.find(call, from); at != std::string::npos; at = line.find(call, at + 1)) {
    const char before = at > 0 ? line[at - 1] : ' ';
    if (!std::isalnum(static_cast<unsigned char>(before)) && before != '_') return at + call.size();
  }
  return std::string::npos;
}

/// `text` up to the comma or parenthesis that ends the first argument, after the parenthesis that opens the list.
std::string first_argument(std::string_view text) {
  int depth = 0;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote) {
      if (c == '\\') ++i;
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '(' || c == '{' || c == '[') {
      ++depth;
    } else if (depth == 0 && (c == ',' || c == ')')) {
      return std::string(text.substr(0, i));
    } else if (c == ')' || c == '}' || c == ']') {
      --depth;
    }
  }
  return {};
}

}  // namespace

void set_wrapped(lua_State* L, int outer, int inner) {
  outer = lua_absindex(L, outer), inner = lua_absindex(L, inner);
  push_weak_table(L, &wrapped);
  lua_pushvalue(L, outer);
  lua_pushvalue(L, inner);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

void set_made(lua_State* L, int outer, const char* name, int first, int last) {
  outer = lua_absindex(L, outer);
  push_weak_table(L, &made);
  lua_pushvalue(L, outer);
  lua_newtable(L);
  lua_pushstring(L, name);
  lua_rawseti(L, -2, 1);
  for (int i = first; i <= last; ++i) {
    lua_pushvalue(L, i);
    lua_rawseti(L, -2, i - first + 2);
  }
  lua_pushinteger(L, last - first + 1);
  lua_setfield(L, -2, "n");
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

bool push_made(lua_State* L, int index) {
  index = lua_absindex(L, index);
  push_weak_table(L, &made);
  lua_pushvalue(L, index);
  lua_rawget(L, -2);
  lua_remove(L, -2);
  if (lua_istable(L, -1)) return true;
  lua_pop(L, 1);
  return false;
}

void push_wrapped(lua_State* L, int index) {
  lua_pushvalue(L, index);
  push_weak_table(L, &wrapped);
  for (;;) {
    lua_pushvalue(L, -2);
    if (lua_rawget(L, -2) == LUA_TNIL) break;
    lua_replace(L, -3);
  }
  lua_pop(L, 2);
}

std::string function_name(lua_State* L, int index) {
  if (!lua_isfunction(L, index)) {
    const int type = luaL_getmetafield(L, index, "__name");
    std::string name = type == LUA_TSTRING ? lua_tostring(L, -1) : "callable";
    if (type != LUA_TNIL) lua_pop(L, 1);
    if (name == "module") {  // by its class: "Net(...)"
      const std::string text = luaL_tolstring(L, index, nullptr);
      lua_pop(L, 1);
      if (const size_t end = text.find('('); end != std::string::npos && end > 0) name = text.substr(0, end);
    }
    return name;
  }
  lua_Debug info;
  push_wrapped(L, index);
  lua_getinfo(L, ">S", &info);
  if (info.linedefined <= 0) return "a function of C";
  return std::string(info.short_src) + ":" + std::to_string(info.linedefined);
}

Script::Definition definition_of(lua_State* L, int index) {
  const int base = lua_gettop(L);
  push_wrapped(L, index);
  if (lua_istable(L, -1)) lua_getfield(L, -1, "forward");
  Script::Definition definition;
  if (lua_isfunction(L, -1) && !lua_iscfunction(L, -1)) {
    lua_Debug info;
    lua_pushvalue(L, -1);
    lua_getinfo(L, ">S", &info);
    if (std::string_view(info.source).substr(0, 2) != "=[") {
      definition = {{info.short_src, info.linedefined}, quoted(L, info, info.linedefined, nullptr)};
      if (const std::string_view text = chunk_text(L, -1); !text.empty()) messages::trace_source(info.short_src, text);
    }
  }
  lua_settop(L, base);
  return definition;
}

std::string argument_as_written(lua_State* L, const std::string& name) {
  lua_Debug frame;
  if (!push_script_function_from(L, 1, frame)) return {};
  const std::string line = source_lines(L, frame.source, frame.currentline, 1);
  const std::string more = source_lines(L, frame.source, frame.currentline, 5);
  lua_pop(L, 1);
  const size_t at = find_call(line, name, 0);
  if (at == std::string::npos || find_call(line, name, at) != std::string::npos) return {};  // which of two is it?
  return first_argument(more.substr(at));
}

std::string line_as_written(lua_State* L) {
  lua_Debug frame;
  if (!push_script_function_from(L, 0, frame)) return {};
  std::string line = source_lines(L, frame.source, frame.currentline, 1);
  lua_pop(L, 1);
  return line;
}

capture::UserCode user_code(lua_State* L) {
  const auto where = [L] {
    Source line = current_line(L);
    line.region = context(L).region;
    return line;
  };
  return {where, [L] { return stack_of(L); }, [L] { return line_as_written(L); }};
}

}  // namespace triage::lua
