#include "bindings/lua/annotations/annotations.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <lua.hpp>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <vector>

#include "bindings/lua/engine/script_state.h"
#include "bindings/lua/state/protected.h"
#include "bindings/lua/tensors/calls/overloads.h"
#include "bindings/lua/values/constants.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/distributed/dist_functions.h"

namespace triage::lua {
namespace {

/// A value of the library, as far as an editor wants to know it.
struct AnnotationEntry {
  int type = LUA_TNIL;
  std::string parameters;                         // of a function
  std::string of_type;                            // of other values, in the editor's words
  std::map<std::string, AnnotationEntry> fields;  // of a table
};
using Entries = std::map<std::string, AnnotationEntry>;

/// Groups whose names come from the dispatcher, and the prefix of these names there.
const std::map<std::string, std::string>& operator_groups() {
  static const auto& groups = *new std::map<std::string, std::string>{
      {"torch", ""}, {"torch.linalg", "linalg_"}, {"torch.fft", "fft_"}, {"torch.special", "special_"}};
  return groups;
}

bool is_name(const std::string& text) {
  static const auto& keywords = *new std::set<std::string>{
      "and", "break", "do",  "else", "elseif", "end",    "false",  "for",  "function", "goto",  "if",
      "in",  "local", "nil", "not",  "or",     "repeat", "return", "then", "true",     "until", "while"};
  const auto part = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
  return !text.empty() && !std::isdigit(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(), part) && !keywords.count(text);
}

std::string parameter_name(const std::string& name) { return is_name(name) ? name : name + "_"; }

AnnotationEntry entry_of(lua_State* L, std::set<const void*>& seen);

/// Of the table on top.
Entries entries_of(lua_State* L, std::set<const void*>& seen) {
  Entries entries;
  luaL_checkstack(L, 8, "tables of the library");
  lua_pushnil(L);
  while (lua_next(L, -2)) {
    if (lua_type(L, -2) == LUA_TSTRING) {
      const std::string name = lua_tostring(L, -2);
      if (is_name(name) && name.rfind("__", 0) != 0) entries[name] = entry_of(L, seen);
    }
    lua_pop(L, 1);
  }
  const int behind =
      luaL_getmetafield(L, -1, "__index");  // where tables that scripts may not write to keep their fields
  if (behind == LUA_TTABLE && seen.insert(lua_topointer(L, -1)).second) entries.merge(entries_of(L, seen));
  if (behind != LUA_TNIL) lua_pop(L, 1);
  return entries;
}

/// Of the value on top. `seen`: the tables around it, which it may name again.
AnnotationEntry entry_of(lua_State* L, std::set<const void*>& seen) {
  AnnotationEntry entry;
  entry.type = lua_type(L, -1);
  switch (entry.type) {
    case LUA_TFUNCTION:
      entry.parameters = parameters_of(L, -1).value_or("...");
      break;
    case LUA_TTABLE:
      if (const auto [at, fresh] = seen.insert(lua_topointer(L, -1)); fresh) {
        entry.fields = entries_of(L, seen);
        seen.erase(at);
      }
      break;
    case LUA_TNUMBER:
      entry.of_type = lua_isinteger(L, -1) ? "integer" : "number";
      break;
    case LUA_TUSERDATA:
      entry.of_type = test_dtype(L, -1) ? "dtype" : "any";
      break;
    default:
      entry.of_type = luaL_typename(L, -1);
  }
  return entry;
}

/// Names that Lua itself defines, which editors know.
std::set<std::string> standard_names() {
  const std::unique_ptr<lua_State, decltype(&lua_close)> plain(luaL_newstate(), lua_close);
  std::set<std::string> names;
  if (!plain) return names;
  luaL_openlibs(plain.get());
  lua_pushglobaltable(plain.get());
  lua_pushnil(plain.get());
  while (lua_next(plain.get(), -2)) {
    if (lua_type(plain.get(), -2) == LUA_TSTRING) names.insert(lua_tostring(plain.get(), -2));
    lua_pop(plain.get(), 1);
  }
  return names;
}

struct LibraryEntries {
  Entries globals;  // of scripts, which have all that policies have
  std::set<std::string> methods;
};

LibraryEntries read_library() {
  StateOptions options;
  options.sandboxed = false;
  options.limits = {0, 0, 0, 0};
  options.path = "annotations";
  const std::unique_ptr<ScriptState> state = make_script_state(std::move(options), dist_functions(Group()));
  LibraryEntries library;
  in_protected_call(state->lua(), [&](lua_State* L) {
    std::set<const void*> seen;
    state->push_environment();
    seen.insert(lua_topointer(L, -1));
    library.globals = entries_of(L, seen);
    std::set<const void*> of_methods;
    push_methods(L);
    for (const auto& [name, entry] : entries_of(L, of_methods)) library.methods.insert(name);
  });
  const std::set<std::string> known = standard_names();
  for (const std::string& name : known) library.globals.erase(name);
  return library;
}

// --- lua-language-server

std::string editor_type(const OverloadParam& param) {
  switch (param.kind) {
    case ParamKind::scalar:
    case ParamKind::real:
      return "number|Tensor";
    case ParamKind::integer:
      return "integer";
    case ParamKind::tensors:
    case ParamKind::optional_tensors:
      return "Tensor[]";
    case ParamKind::integers:
      return param.length > 0 ? "integer|integer[]" : "integer[]";
    case ParamKind::reals:
    case ParamKind::scalars:
      return "number[]";
    case ParamKind::booleans:
      return "boolean[]";
    case ParamKind::tensor:
      return "Tensor";
    case ParamKind::boolean:
      return "boolean";
    case ParamKind::text:
    case ParamKind::device:
      return "string";
    case ParamKind::dtype:
      return "dtype";
    default:
      return "any";
  }
}

/// Arguments with names go last, in a table; any may be given there.
std::string editor_signature(const Overload& overload) {
  std::vector<std::string> parameters, results;
  for (const lua::OverloadParam& param : overload.params)
    if (!param.keyword_only && !param.out)
      parameters.push_back(fmt::format("{}{}: {}", parameter_name(param.name),
                                       param.has_default || param.optional ? "?" : "", editor_type(param)));
  parameters.emplace_back("named?: table");
  for (const auto& result : overload.schema().returns())
    results.emplace_back(result.type()->kind() == c10::TypeKind::TensorType ? "Tensor" : "any");
  return fmt::format("fun({}){}{}", fmt::join(parameters, ", "), results.empty() ? "" : ": ", fmt::join(results, ", "));
}

/// `base` is the name after "aten::". Empty where it is no operator, or has no overload that fits.
std::string overload_lines(const std::string& base, bool method) {
  const Operator* const found = find_operator("aten::" + base);
  std::string lines;
  if (!found) return lines;
  std::set<std::string> said;  // some differ in what is not shown only
  for (const Overload& overload : found->overloads) {
    if (overload.writes_out || (method && overload.self != 0)) continue;
    const std::string signature = editor_signature(overload);
    if (said.insert(signature).second) lines += "---@overload " + signature + "\n";
  }
  return lines;
}

/// Operators of the dispatcher that begin with `prefix`, without it; internal ones left out.
std::vector<std::string> operators_with(const std::string& prefix) {
  std::set<std::string> names;
  const std::string wanted = "aten::" + prefix;
  for (const auto& op : c10::Dispatcher::singleton().getAllOpNames()) {
    if (op.name.rfind(wanted, 0) != 0) continue;
    const std::string name = op.name.substr(wanted.size());
    if (is_name(name) && name[0] != '_') names.insert(name);
  }
  return {names.begin(), names.end()};
}

void write_fields(std::string& text, const std::string& path, const Entries& fields);

void write_entry(std::string& text, const std::string& path, const AnnotationEntry& entry) {
  if (entry.type == LUA_TFUNCTION) {
    text += fmt::format("function {}({}) end\n", path, entry.parameters);
  } else if (entry.type == LUA_TTABLE) {
    text += path + " = {}\n";
    write_fields(text, path, entry.fields);
  } else {
    text += fmt::format("---@type {}\n{} = nil\n", entry.of_type, path);
  }
}

void write_fields(std::string& text, const std::string& path, const Entries& fields) {
  const auto group = operator_groups().find(path);
  for (const auto& [name, entry] : fields) {
    if (group != operator_groups().end() && entry.type == LUA_TFUNCTION)
      text += overload_lines(group->second + name, false);
    write_entry(text, path + "." + name, entry);
  }
  if (group == operator_groups().end()) return;
  for (const std::string& name : operators_with(group->second)) {
    if (fields.count(name)) continue;
    const std::string overloads = overload_lines(group->second + name, false);
    if (!overloads.empty()) text += fmt::format("{}function {}.{}(...) end\n", overloads, path, name);
  }
}

constexpr const char* tensor_class = R"(
---@class dtype
---@class Tensor
---@field shape integer[]
---@field dtype dtype
---@field device string
---@field layout any
---@field ndim integer
---@field itemsize integer
---@field requires_grad boolean
---@field is_leaf boolean
---@field grad Tensor?
---@field T Tensor
---@field mT Tensor
---@operator add(any): Tensor
---@operator sub(any): Tensor
---@operator mul(any): Tensor
---@operator div(any): Tensor
---@operator idiv(any): Tensor
---@operator mod(any): Tensor
---@operator pow(any): Tensor
---@operator unm: Tensor
---@operator band(any): Tensor
---@operator bor(any): Tensor
---@operator bxor(any): Tensor
---@operator bnot: Tensor
---@operator len: integer
local tensor = {}
)";

void write_methods(std::string& text, const std::set<std::string>& methods) {
  std::set<std::string> names = methods;
  for (const std::string& name : operators_with(""))
    if (!overload_lines(name, true).empty()) names.insert(name);
  for (const std::string& name : names)
    text += fmt::format("{}function tensor.{}(...) end\n", overload_lines(name, true), name);
}

// --- luacheck

/// Tables with a fixed set of fields name them all; what the script may write to, or has fields without end, does not.
std::string luacheck_entry(const std::string& path, const std::string& name, const AnnotationEntry& entry) {
  const bool open = operator_groups().count(path) || entry.type == LUA_TUSERDATA;
  if (entry.type == LUA_TUSERDATA && entry.of_type == "any")
    return fmt::format("{} = {{ other_fields = true, read_only = false }}", name);
  if (entry.type != LUA_TTABLE) return fmt::format("{} = {{}}", name);
  std::vector<std::string> fields;
  for (const auto& [field, inner] : entry.fields) fields.push_back(luacheck_entry(path + "." + field, field, inner));
  return fmt::format("{} = {{ {}fields = {{ {} }} }}", name, open || fields.empty() ? "other_fields = true, " : "",
                     fmt::join(fields, ", "));
}

}  // namespace

std::string editor_annotations() {
  const LibraryEntries library = read_library();
  std::string text =
      "---@meta\n-- The library of triage for lua-language-server. Generated by `triage generate`: changes are lost.\n"
      "-- luacheck: ignore\n";
  text += tensor_class;
  write_methods(text, library.methods);
  for (const auto& [name, entry] : library.globals) write_entry(text, name, entry);
  return text;
}

std::string luacheck_configuration() {
  std::string text =
      "-- The library of triage for luacheck. Generated by `triage generate`: changes are lost.\n"
      "-- luacheck --config luacheckrc FILES, or in your own .luacheckrc: read_globals = dofile(\"luacheckrc\").\n"
      "std = \"lua54\"\nunused_args = false\nread_globals = {\n";
  const LibraryEntries library = read_library();
  for (const auto& [name, entry] : library.globals) text += "  " + luacheck_entry(name, name, entry) + ",\n";
  return text + "}\nreturn read_globals\n";
}

}  // namespace triage::lua
