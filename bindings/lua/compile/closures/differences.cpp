#include "bindings/lua/compile/closures/differences.h"

#include "bindings/lua/values/tensor.h"
#include "runtime/messages/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

namespace triage::lua {
namespace {

using ClosureEnvironment = CompiledFunction::ClosureEnvironment;

constexpr const char* tensor_text = "a tensor";
constexpr const char* same_tensor_text = "the same tensor as argument ";

/// As Lua prints it, unless that is another number.
std::string float_text(lua_State* L, int index) {
  const lua_Number number = lua_tonumber(L, index);
  std::string text = luaL_tolstring(L, index, nullptr);
  lua_pop(L, 1);
  double shown = 0;
  std::from_chars(text.data(), text.data() + text.size(), shown);
  const bool exact = number != number || shown == number;
  return exact ? text : fmt::format("{}", number);
}

std::vector<std::string> argument_texts(lua_State* L, int last) {
  std::vector<std::string> texts;
  for (int i = 2; i <= last; ++i) {
    const bool quoted = lua_type(L, i) == LUA_TSTRING;
    if (test_tensor(L, i)) {
      int first = 2;
      while (!lua_rawequal(L, first, i)) ++first;
      texts.push_back(first == i ? tensor_text : same_tensor_text + std::to_string(first - 1));
      continue;
    }
    if (lua_type(L, i) == LUA_TNUMBER && !lua_isinteger(L, i)) {
      texts.push_back(float_text(L, i));
      continue;
    }
    luaL_tolstring(L, i, nullptr);
    texts.push_back(quoted ? "'" + std::string(lua_tostring(L, -1)) + "'" : lua_tostring(L, -1));
    lua_pop(L, 1);
  }
  return texts;
}

std::string_view part_of(const ClosureEnvironment& environment, size_t part) {
  const size_t begin = part ? environment.parts[part - 1].second : 0;
  return std::string_view(environment.key)
      .substr(environment.state_begin + begin, environment.parts[part].second - begin);
}

std::string_view state_of(const ClosureEnvironment& environment) {
  return std::string_view(environment.key).substr(environment.state_begin);
}

template <typename T>
T number_in(std::string_view bytes) {
  T number;
  std::memcpy(&number, bytes.data(), sizeof(number));
  return number;
}

/// The plain value whose bytes in closure_state begin here, as a person writes it; nothing where it is long, or no
/// plain value.
std::optional<std::string> plain_value(lua_State* L, std::string_view bytes) {
  constexpr size_t longest = 40;
  const char tag = bytes.empty() ? '\0' : bytes[0];
  if (tag == 'n' || tag == 'T' || tag == 'F') return tag == 'n' ? "nil" : tag == 'T' ? "true" : "false";
  bytes.remove_prefix(std::min<size_t>(bytes.size(), 1));
  if (bytes.size() < sizeof(int64_t)) return std::nullopt;
  if (tag == 'i') return fmt::format("{}", number_in<lua_Integer>(bytes));
  if (tag == 'd') {
    lua_pushnumber(L, number_in<lua_Number>(bytes));
    std::string text = float_text(L, lua_gettop(L));
    lua_pop(L, 1);
    return text;
  }
  if (tag != 's') return std::nullopt;
  const size_t length = number_in<size_t>(bytes);
  if (length > longest || bytes.size() < sizeof(size_t) + length) return std::nullopt;
  return "'" + messages::one_line(bytes.substr(sizeof(size_t), length)) + "'";
}

/// The first argument that is not as it was.
std::optional<size_t> differing_argument(const ClosureEnvironment& before, const ClosureEnvironment& now) {
  for (size_t i = 0; i < std::max(before.arguments.size(), now.arguments.size()); ++i)
    if (i >= before.arguments.size() || i >= now.arguments.size() || before.arguments[i] != now.arguments[i]) return i;
  return std::nullopt;
}

/// The first variable, likewise.
std::optional<size_t> differing_part(const ClosureEnvironment& before, const ClosureEnvironment& now) {
  for (size_t i = 0; i < before.parts.size() && i < now.parts.size(); ++i)
    if (part_of(before, i) != part_of(now, i)) return i;
  return std::nullopt;
}

/// "argument 2 ('rate')".
std::string argument_name(const ClosureEnvironment& before, const ClosureEnvironment& now, size_t argument) {
  const auto& names = argument < now.names.size() ? now.names : before.names;
  const std::string name = argument < names.size() ? names[argument] : "";
  return fmt::format("argument {}{}", argument + 1, name.empty() ? "" : " ('" + name + "')");
}

/// Nothing where it is more than a value of a variable.
std::optional<std::string> difference_of_values(lua_State* L, int function, std::string_view before,
                                                std::string_view now) {
  const auto at =
      static_cast<size_t>(std::mismatch(before.begin(), before.end(), now.begin(), now.end()).second - now.begin());
  lua_rawgeti(L, LUA_REGISTRYINDEX, function);
  const std::optional<StatePlace> place = place_in_state(L, lua_gettop(L), now, at);
  lua_pop(L, 1);
  if (!place) return std::nullopt;
  const std::string_view was = before.substr(place->begin), is = now.substr(place->begin);
  const auto old_value = plain_value(L, was), new_value = plain_value(L, is);
  if (old_value && new_value) return fmt::format("{} was {}, is now {}", place->name, *old_value, *new_value);
  if (!was.empty() && was[0] == 't' && is[0] == 't')
    return place->name +
           ": the dtype, device, shape or requires_grad of the tensor changed, or what else is that tensor";
  return place->name + " changed";
}

}  // namespace

void note_arguments(lua_State* L, int function, int last, ClosureEnvironment& environment) {
  constexpr size_t most_names = 64;
  environment.arguments = argument_texts(L, last);
  lua_rawgeti(L, LUA_REGISTRYINDEX, function);
  environment.names = parameter_names(L, -1, std::min(environment.arguments.size(), most_names));
  lua_pop(L, 1);
  for (size_t i = 0; i < environment.names.size(); ++i)
    if (environment.names[i] == "x" + std::to_string(i)) environment.names[i].clear();  // it has none
}

bool is_tensor_argument(const ClosureEnvironment& environment, size_t i) {
  return environment.arguments[i] == tensor_text || environment.arguments[i].rfind(same_tensor_text, 0) == 0;
}

std::string differing_guard(const ClosureEnvironment& before, const ClosureEnvironment& now) {
  if (const auto argument = differing_argument(before, now)) return argument_name(before, now, *argument);
  if (const auto part = differing_part(before, now)) return now.parts[*part].first;
  return "a variable";
}

std::string difference(lua_State* L, int function, const ClosureEnvironment& before, const ClosureEnvironment& now) {
  if (const auto argument = differing_argument(before, now)) {
    const size_t i = *argument;
    const std::string was = i < before.arguments.size() ? before.arguments[i] : "nothing";
    const std::string is = i < now.arguments.size() ? now.arguments[i] : "nothing";
    const bool parted = is == tensor_text && was.rfind(same_tensor_text, 0) == 0;
    return fmt::format("{} was {}, is now {}", argument_name(before, now, i), was, parted ? "a different tensor" : is);
  }
  if (const auto part = differing_part(before, now)) {
    const auto values = difference_of_values(L, function, state_of(before), state_of(now));
    return values.value_or(now.parts[*part].first + " changed");
  }
  const bool same_arguments = before.key.substr(0, before.state_begin) == now.key.substr(0, now.state_begin);
  return same_arguments ? "a variable that the function may read changed"
                        : "a tensor argument became, or was, also a variable of the function";
}

}  // namespace triage::lua
