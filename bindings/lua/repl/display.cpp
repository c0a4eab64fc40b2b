#include "bindings/lua/repl/display.h"

#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/tensors/types/print.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/tensor.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <triage/flags.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

namespace triage::lua {
namespace {

constexpr int max_nesting = 3;
constexpr size_t max_items = 50;    // of one table
constexpr size_t max_entries = 20;  // of flags
constexpr int64_t max_inline = 8;   // elements of a tensor inside a table

/// What is wrong with the elements, where anything is: "  (3 NaN, 1 Inf)".
std::string not_finite(const at::Tensor& tensor) {
  if (tensor.is_meta() || tensor.layout() != at::Layout::Strided || tensor.numel() == 0) return "";
  if (!tensor.is_floating_point() && !tensor.is_complex()) return "";
  const auto nans = tensor.isnan().sum().item<int64_t>(), infs = tensor.isinf().sum().item<int64_t>();
  if (nans + infs == 0) return "";
  if (infs == 0) return fmt::format("  ({} NaN)", nans);
  return nans == 0 ? fmt::format("  ({} Inf)", infs) : fmt::format("  ({} NaN, {} Inf)", nans, infs);
}

std::string tensor_text(lua_State* L, int index, const at::Tensor& tensor) {
  constexpr int64_t printed_whole = 1000;
  std::string text = to_text(tensor);
  const std::string bad = not_finite(tensor);
  if (tensor.numel() > printed_whole || !bad.empty()) text += "\n" + describe(L, index) + bad;
  return text;
}

std::string flags_text(const at::Tensor& flags, const CodeNames& codes) {
  std::string text = flags::repr(flags, {.codes = codes});
  const auto rows = flags::to_table(flags, {.codes = codes});
  if (rows.empty()) return text;
  size_t code = 4, location = 8;
  for (const auto& row : rows) {
    code = std::max(code, row.error.code_name.size());
    location = std::max(location, row.error.location_name.size());
  }
  text += fmt::format("\n  sample  slot  {:<{}}  {:<{}}  severity", "code", code, "location", location);
  for (size_t i = 0; i < std::min(rows.size(), max_entries); ++i) {
    const auto& row = rows[i];
    text += fmt::format("\n  {:>6}  {:>4}  {:<{}}  {:<{}}  {}", row.sample, row.slot, row.error.code_name, code,
                        row.error.location_name, location, row.error.severity_name);
  }
  if (rows.size() > max_entries) text += fmt::format("\n  ... and {} more entries", rows.size() - max_entries);
  return text;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c == '\n' ? "\\n" : std::string(1, c);
  }
  return result + '"';
}

std::string plain_text(lua_State* L, int index) {
  size_t length = 0;
  const char* const text = luaL_tolstring(L, index, &length);
  std::string result(text, length);
  lua_pop(L, 1);
  return result;
}

std::string nested_text(lua_State* L, int index, int nesting);

/// "function(a, b, ...)", with the place of a script's own; "function" for one of C, whose parameters nobody knows.
std::string function_text(lua_State* L, int index) {
  const std::optional<std::string> parameters = parameters_of(L, index);
  if (!parameters) return "function";
  lua_Debug info;
  lua_pushvalue(L, index);
  lua_getinfo(L, ">S", &info);
  const bool of_script = *info.source == '@' || std::string_view(info.source) == "=repl";
  return "function(" + *parameters + ")" + (of_script ? fmt::format(" {}:{}", info.short_src, info.linedefined) : "");
}

/// The path of the library's function at `index` in the table on top: "err.fix"; empty where it is not there.
std::string library_name(lua_State* L, int index, int nesting) {
  const int table = lua_gettop(L);
  std::string inner;
  lua_pushnil(L);
  while (lua_next(L, table)) {
    const bool named = lua_type(L, -2) == LUA_TSTRING && std::string_view(lua_tostring(L, -2)) != "_G";
    if (named && lua_rawequal(L, -1, index)) {
      std::string name = lua_tostring(L, -2);
      lua_pop(L, 2);
      return name;
    }
    if (named && nesting == 0 && inner.empty() && lua_istable(L, -1)) {
      const std::string name = library_name(L, index, 1);
      if (!name.empty()) inner = lua_tostring(L, -2) + ("." + name);
    }
    lua_pop(L, 1);
  }
  return inner;
}

/// Of a function that is asked for by itself: "fix: function(z, f, loc, options)".
std::string named_function_text(lua_State* L, int index) {
  lua_pushglobaltable(L);
  const std::string name = library_name(L, index, 0);
  lua_pop(L, 1);
  return (name.empty() ? "" : name + ": ") + function_text(L, index);
}

bool is_name(const std::string& text) {
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text[0]))) return false;
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

/// The fields behind the list part, those with names first, in order.
std::vector<std::string> field_texts(lua_State* L, int table, lua_Integer list, int nesting) {
  std::vector<std::string> named, other;
  lua_pushnil(L);
  while (lua_next(L, table)) {
    const bool in_list = lua_isinteger(L, -2) && lua_tointeger(L, -2) >= 1 && lua_tointeger(L, -2) <= list;
    if (!in_list && named.size() + other.size() <= max_items) {
      const std::string value = nested_text(L, lua_gettop(L), nesting + 1);
      const std::string key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
      if (is_name(key))
        named.push_back(key + " = " + value);
      else
        other.push_back("[" + nested_text(L, lua_gettop(L) - 1, max_nesting) + "] = " + value);
    }
    lua_pop(L, 1);
  }
  std::sort(named.begin(), named.end());
  named.insert(named.end(), other.begin(), other.end());
  return named;
}

std::string table_text(lua_State* L, int table, int nesting) {
  reserve(L, 0, "the table is nested too deep");
  const auto list = static_cast<lua_Integer>(lua_rawlen(L, table));
  std::vector<std::string> items;
  for (lua_Integer i = 1; i <= std::min<lua_Integer>(list, max_items + 1); ++i) {
    lua_rawgeti(L, table, i);
    items.push_back(nested_text(L, lua_gettop(L), nesting + 1));
    lua_pop(L, 1);
  }
  for (std::string& field : field_texts(L, table, list, nesting)) items.push_back(std::move(field));
  if (items.empty()) return "{}";
  const bool cut = items.size() > max_items;
  if (cut) items.resize(max_items);
  size_t length = 0;
  bool several_lines = false;
  for (const std::string& item : items)
    length += item.size() + 2, several_lines |= item.find('\n') != std::string::npos;
  constexpr size_t one_line = 100;
  const std::string indent(static_cast<size_t>(nesting + 1) * 2, ' ');
  const bool broken = length > one_line || several_lines;
  std::string text = "{";
  for (size_t i = 0; i < items.size(); ++i)
    text += (broken ? "\n" + indent : "") + items[i] + (i + 1 < items.size() || cut ? (broken ? "," : ", ") : "");
  if (cut) text += broken ? "\n" + indent + "..." : "...";
  return text + (broken ? "\n" + indent.substr(2) : "") + "}";
}

std::string nested_text(lua_State* L, int index, int nesting) {
  if (const at::Tensor* tensor = test_tensor(L, index)) {
    const bool small = tensor->numel() <= max_inline && tensor->dim() <= 1;
    return small ? to_text(*tensor) : describe(L, index);
  }
  if (lua_type(L, index) == LUA_TSTRING) return quoted(plain_text(L, index));
  if (lua_type(L, index) == LUA_TFUNCTION) return function_text(L, index);
  if (lua_type(L, index) != LUA_TTABLE) return plain_text(L, index);
  const bool prints_itself = luaL_getmetafield(L, index, "__tostring") != LUA_TNIL;
  if (prints_itself) {
    lua_pop(L, 1);
    return plain_text(L, index);
  }
  return nesting < max_nesting ? table_text(L, index, nesting) : "{...}";
}

}  // namespace

std::string display(lua_State* L, int index, bool is_flags) {
  index = lua_absindex(L, index);
  if (const at::Tensor* tensor = test_tensor(L, index))
    return is_flags ? flags_text(*tensor, context(L).codes) : tensor_text(L, index, *tensor);
  if (lua_type(L, index) == LUA_TSTRING) return plain_text(L, index);
  if (lua_type(L, index) == LUA_TFUNCTION) return named_function_text(L, index);
  return nested_text(L, index, 0);
}

}  // namespace triage::lua
