#include "bindings/lua/sandbox/library.h"
#include "bindings/lua/sandbox/pattern.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/state.h"

#include <cstring>
#include <string>
#include <string_view>

/// Contract: one instruction is charged for each step of the matcher and for each 16 bytes that C code walks over;
/// bytes are charged before they are allocated.
namespace triage::lua {
namespace {

constexpr uint64_t bytes_per_instruction = 16;
constexpr char escape = '%';

std::string_view check_text(lua_State* L, int index) {
  size_t length = 0;
  const char* text = luaL_checklstring(L, index, &length);
  return {text, length};
}

/// A start position as string.find takes it: 1-based, negative from the end.
size_t start_position(lua_Integer position, size_t length) {
  if (position > 0) return static_cast<size_t>(position);
  if (position == 0 || position < -static_cast<lua_Integer>(length)) return 1;
  return length + static_cast<size_t>(position) + 1;
}

PatternMatcher::Charge steps_of(lua_State* L) {
  return [L](uint64_t steps) { charge(L, 0, 0, steps); };
}

/// Pushes capture `index` of a match from `begin` to `end`; the whole match stands for capture 0 where there is none.
void push_capture(lua_State* L, const PatternMatcher& matcher, std::string_view subject, int index, size_t begin,
                  size_t end) {
  std::string_view text;
  if (index >= matcher.captures()) {
    if (index != 0) throw LibraryError("invalid capture index %" + std::to_string(index + 1));
    text = subject.substr(begin, end - begin);
  } else {
    const auto& capture = matcher.capture(index);
    if (capture.length == PatternMatcher::unfinished) throw LibraryError("unfinished capture");
    if (capture.length == PatternMatcher::position) {
      lua_pushinteger(L, static_cast<lua_Integer>(capture.begin) + 1);
      return;
    }
    text = subject.substr(capture.begin, static_cast<size_t>(capture.length));
  }
  charge_text(L, text.size());
  lua_pushlstring(L, text.data(), text.size());
}

/// Pushes all captures, and returns how many; `whole`: the match itself where the pattern has none.
int push_captures(lua_State* L, const PatternMatcher& matcher, std::string_view subject, bool whole, size_t begin,
                  size_t end) {
  const int count = matcher.captures() == 0 && whole ? 1 : matcher.captures();
  reserve(L, static_cast<size_t>(count), "too many captures");
  for (int i = 0; i < count; ++i) push_capture(L, matcher, subject, i, begin, end);
  return count;
}

bool is_plain(std::string_view pattern) { return pattern.find_first_of("^$*+?.([%-") == std::string_view::npos; }

int find_plain(lua_State* L, std::string_view subject, std::string_view pattern, size_t start) {
  charge(L, 0, 0, 1 + (subject.size() - start + pattern.size()) / bytes_per_instruction);
  const char* from = subject.data() + start;
  const void* found = pattern.empty() ? from : memmem(from, subject.size() - start, pattern.data(), pattern.size());
  if (!found) {
    luaL_pushfail(L);
    return 1;
  }
  const auto begin = static_cast<const char*>(found) - subject.data();
  lua_pushinteger(L, begin + 1);
  lua_pushinteger(L, begin + static_cast<lua_Integer>(pattern.size()));
  return 2;
}

int search(lua_State* L, bool find) {
  const std::string_view subject = check_text(L, 1);
  std::string_view pattern = check_text(L, 2);
  const size_t start = start_position(luaL_optinteger(L, 3, 1), subject.size()) - 1;
  if (start > subject.size()) {
    luaL_pushfail(L);
    return 1;
  }
  if (find && (lua_toboolean(L, 4) || is_plain(pattern))) return find_plain(L, subject, pattern, start);
  const bool anchored = !pattern.empty() && pattern[0] == '^';
  if (anchored) pattern.remove_prefix(1);
  PatternMatcher matcher(subject, pattern, steps_of(L));
  for (size_t begin = start; begin <= subject.size(); ++begin) {
    if (const auto end = matcher.match(begin)) {
      matcher.settle();
      if (!find) return push_captures(L, matcher, subject, true, begin, *end);
      lua_pushinteger(L, static_cast<lua_Integer>(begin) + 1);
      lua_pushinteger(L, static_cast<lua_Integer>(*end));
      return 2 + push_captures(L, matcher, subject, false, begin, *end);
    }
    if (anchored) break;
  }
  matcher.settle();
  luaL_pushfail(L);
  return 1;
}

int string_find(lua_State* L) { return search(L, true); }
int string_match(lua_State* L) { return search(L, false); }

/// The iterator of gmatch. Upvalues: subject, pattern, where to go on, end of the last match (-1: none yet).
int gmatch_next(lua_State* L) {
  const std::string_view subject = check_text(L, lua_upvalueindex(1));
  PatternMatcher matcher(subject, check_text(L, lua_upvalueindex(2)), steps_of(L));
  const auto from = static_cast<size_t>(lua_tointeger(L, lua_upvalueindex(3)));
  const lua_Integer last = lua_tointeger(L, lua_upvalueindex(4));
  for (size_t begin = from; begin <= subject.size(); ++begin) {
    const auto end = matcher.match(begin);
    if (!end || static_cast<lua_Integer>(*end) == last) continue;
    matcher.settle();
    for (int upvalue = 3; upvalue <= 4; ++upvalue) {
      lua_pushinteger(L, static_cast<lua_Integer>(*end));
      lua_replace(L, lua_upvalueindex(upvalue));
    }
    return push_captures(L, matcher, subject, true, begin, *end);
  }
  matcher.settle();
  return 0;
}

int string_gmatch(lua_State* L) {
  const std::string_view subject = check_text(L, 1);
  check_text(L, 2);
  const size_t start = start_position(luaL_optinteger(L, 3, 1), subject.size()) - 1;
  lua_settop(L, 2);
  lua_pushinteger(L, static_cast<lua_Integer>(start > subject.size() ? subject.size() + 1 : start));
  lua_pushinteger(L, -1);
  lua_pushcclosure(L, library_function<gmatch_next>, 4);
  return 1;
}

/// Appends the replacement text at argument 3, with its %0..%9 filled in.
void append_template(lua_State* L, const PatternMatcher& matcher, std::string_view subject, size_t begin, size_t end,
                     std::string& out) {
  std::string_view text = check_text(L, 3);
  for (size_t at = text.find(escape); at != std::string_view::npos; at = text.find(escape)) {
    out.append(text.substr(0, at));
    const unsigned char what = at + 1 < text.size() ? static_cast<unsigned char>(text[at + 1]) : 0;
    if (what == escape) {
      out.push_back(escape);
    } else if (what == '0') {
      out.append(subject.substr(begin, end - begin));
    } else if (what >= '1' && what <= '9') {
      push_capture(L, matcher, subject, what - '1', begin, end);
      out.append(check_text(L, -1));
      lua_pop(L, 1);
    } else {
      throw LibraryError("invalid use of '%' in replacement string");
    }
    charge_text(L, out.size(), 1);
    text.remove_prefix(at + 2);
  }
  out.append(text);
}

/// Appends what takes the place of one match; false where the match stays as it is.
bool append_replacement(lua_State* L, const PatternMatcher& matcher, std::string_view subject, size_t begin, size_t end,
                        std::string& out) {
  if (lua_type(L, 3) == LUA_TFUNCTION) {
    lua_pushvalue(L, 3);
    lua_call(L, push_captures(L, matcher, subject, true, begin, end), 1);
  } else if (lua_type(L, 3) == LUA_TTABLE) {
    push_capture(L, matcher, subject, 0, begin, end);
    lua_gettable(L, 3);
  } else {
    append_template(L, matcher, subject, begin, end, out);
    return true;
  }
  if (!lua_toboolean(L, -1)) {
    lua_pop(L, 1);
    out.append(subject.substr(begin, end - begin));
    return false;
  }
  if (!lua_isstring(L, -1))
    throw LibraryError(std::string("invalid replacement value (a ") + luaL_typename(L, -1) + ")");
  out.append(check_text(L, -1));
  lua_pop(L, 1);
  return true;
}

int string_gsub(lua_State* L) {
  const std::string_view subject = check_text(L, 1);
  std::string_view pattern = check_text(L, 2);
  const int kind = lua_type(L, 3);
  luaL_argexpected(L, kind == LUA_TNUMBER || kind == LUA_TSTRING || kind == LUA_TFUNCTION || kind == LUA_TTABLE, 3,
                   "string/function/table");
  const lua_Integer most = luaL_optinteger(L, 4, static_cast<lua_Integer>(subject.size()) + 1);
  const bool anchored = !pattern.empty() && pattern[0] == '^';
  if (anchored) pattern.remove_prefix(1);
  PatternMatcher matcher(subject, pattern, steps_of(L));
  std::string out;
  size_t at = 0;
  std::optional<size_t> last;
  lua_Integer count = 0;
  bool changed = false;
  while (count < most) {
    const auto end = matcher.match(at);
    if (end && end != last) {
      ++count;
      changed = append_replacement(L, matcher, subject, at, *end, out) || changed;
      charge_text(L, out.size(), 1);
      last = end;
      at = *end;
    } else if (at < subject.size()) {
      out.push_back(subject[at++]);
    } else {
      break;
    }
    if (anchored) break;
  }
  matcher.settle();
  if (changed) {
    out.append(subject.substr(at));
    charge_text(L, out.size());
    lua_pushlstring(L, out.data(), out.size());
  } else {
    lua_pushvalue(L, 1);
  }
  lua_pushinteger(L, count);
  return 2;
}

int string_rep(lua_State* L) {
  const std::string_view text = check_text(L, 1);
  const lua_Integer times = luaL_checkinteger(L, 2);
  size_t separator = 0;
  luaL_optlstring(L, 3, "", &separator);
  const size_t piece = text.size() + separator;
  if (times > 0 && piece == 0) {  // Lua would copy nothing, `times` times
    lua_pushliteral(L, "");
    return 1;
  }
  if (times > 0) {
    const auto count = static_cast<size_t>(times);
    if (piece > SIZE_MAX / 2 / count) throw LibraryError("resulting string too large");
    charge_text(L, piece * count);
  }
  return call_wrapped(L);
}

/// What a conversion can need beyond the text of its argument.
size_t conversion_bytes(char conversion) {
  return conversion == 'f' || conversion == 'a' || conversion == 'A' ? 512 : 128;
}

/// Turns the arguments of %s into strings and charges for all that the result can hold; Lua's own function does the
/// rest.
int string_format(lua_State* L) {
  const std::string format(check_text(L, 1));
  size_t bytes = format.size();
  int argument = 1;
  for (size_t i = 0; i + 1 < format.size(); ++i) {
    if (format[i] != escape) continue;
    if (format[++i] == escape) continue;
    while (i < format.size() && std::strchr("-+ #0123456789.", format[i])) ++i;
    if (i == format.size()) break;
    if (++argument > lua_gettop(L)) break;  // Lua says which one is missing
    if (format[i] == 'p') throw LibraryError("'%p' shows an address, which policies may not see; use %s");
    if (format[i] == 's' && !lua_isstring(L, argument)) {
      push_text_without_address(L, argument);
      lua_replace(L, argument);
    }
    if (lua_type(L, argument) == LUA_TSTRING) bytes += lua_rawlen(L, argument) * (format[i] == 'q' ? 4 : 1);
    bytes += conversion_bytes(format[i]);
    if (bytes > 1u << 16) charge_text(L, bytes, 1);
  }
  charge_text(L, bytes);
  return call_wrapped(L);
}

/// For functions whose work grows with their string arguments.
int charge_arguments(lua_State* L) {
  size_t bytes = 0;
  for (int i = 1; i <= lua_gettop(L); ++i)
    if (lua_type(L, i) == LUA_TSTRING) bytes += lua_rawlen(L, i);
  charge_text(L, bytes);
  return call_wrapped(L);
}

/// Bytes of what string.pack makes by `format`, at most: each option needs up to 16 bytes and as many to align it,
/// strings their own, `c` the number behind it.
size_t packed_bytes(lua_State* L, std::string_view format) {
  constexpr size_t per_option = 32, too_many = SIZE_MAX / 4;
  size_t bytes = 0;
  for (size_t i = 0; i < format.size() && bytes < too_many; ++i) {
    bytes += per_option;
    if (format[i] != 'c') continue;
    size_t size = 0;
    while (i + 1 < format.size() && format[i + 1] >= '0' && format[i + 1] <= '9' && size < too_many / 16)
      size = size * 10 + static_cast<size_t>(format[++i] - '0');
    bytes += size;
  }
  for (int i = 2; i <= lua_gettop(L); ++i)
    if (lua_type(L, i) == LUA_TSTRING) bytes += lua_rawlen(L, i);
  return bytes;
}

/// Pieces are left to Lua where they are small; else the format is charged for.
int string_pack(lua_State* L) {
  const std::string_view format = check_text(L, 1);
  charge_text(L, packed_bytes(L, format));
  return call_wrapped(L);
}

/// The operators of Lua on strings that hold numbers.
int string_arithmetic(lua_State* L) {
  for (int i = 1; i <= 2; ++i)
    if (lua_type(L, i) == LUA_TSTRING) charge(L, 0, 0, lua_rawlen(L, i) / bytes_per_instruction);
  return call_wrapped(L);
}

/// For functions whose work grows with what they return.
int charge_results(lua_State* L) {
  const int count = call_wrapped(L);
  if (count > most_values)
    throw LibraryError("too many results: a call in a policy has at most " + std::to_string(most_values));
  size_t bytes = static_cast<size_t>(count) * sizeof(lua_Integer);
  for (int i = lua_gettop(L) - count + 1; i <= lua_gettop(L); ++i)
    if (lua_type(L, i) == LUA_TSTRING) bytes += lua_rawlen(L, i);
  charge_text(L, bytes);
  return count;
}

}  // namespace

void budget_strings(lua_State* L) {
  lua_getglobal(L, "string");
  static const luaL_Reg matching[] = {{"find", library_function<string_find>},
                                      {"match", library_function<string_match>},
                                      {"gmatch", library_function<string_gmatch>},
                                      {"gsub", library_function<string_gsub>},
                                      {nullptr, nullptr}};
  luaL_setfuncs(L, matching, 0);
  wrap_function(L, "pack", library_function<string_pack>);
  wrap_function(L, "rep", library_function<string_rep>);
  wrap_function(L, "format", library_function<string_format>);
  for (const char* name : {"upper", "lower", "reverse", "packsize"})
    wrap_function(L, name, library_function<charge_arguments>);
  for (const char* name : {"sub", "byte", "char", "unpack"}) wrap_function(L, name, library_function<charge_results>);
  lua_pop(L, 1);
  lua_pushliteral(L, "");
  lua_getmetatable(L, -1);
  for (const char* event : {"__add", "__sub", "__mul", "__div", "__mod", "__pow", "__unm", "__idiv"})
    wrap_function(L, event, library_function<string_arithmetic>);
  lua_pop(L, 2);
  lua_getglobal(L, "utf8");
  for (const char* name : {"len", "offset"}) wrap_function(L, name, library_function<charge_arguments>);
  for (const char* name : {"char", "codepoint"}) wrap_function(L, name, library_function<charge_results>);
  lua_pop(L, 1);
}

}  // namespace triage::lua
