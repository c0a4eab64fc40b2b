#include "bindings/lua/repl/completion.h"

#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/tensors/calls/overloads.h"
#include "bindings/lua/values/guarded.h"
#include "bindings/lua/values/tensor.h"

#include <algorithm>
#include <set>
#include <string_view>

namespace triage::lua {
namespace {

constexpr int max_parents = 8;  // tables behind one another by `__index`

constexpr std::string_view keywords[] = {"and",      "break",  "do",   "else", "elseif", "end",  "false", "for",
                                         "function", "goto",   "if",   "in",   "local",  "nil",  "not",   "or",
                                         "repeat",   "return", "then", "true", "until",  "while"};
constexpr std::string_view tensor_fields[] = {"shape",         "dtype",   "device", "layout", "ndim", "itemsize",
                                              "requires_grad", "is_leaf", "grad",   "T",      "mT"};

bool starts_with(std::string_view text, std::string_view start) { return text.substr(0, start.size()) == start; }

/// `a.b:c` taken apart.
struct CompletionWord {
  std::vector<std::string> path;  // a, b
  char separator = 0;             // before the last part; 0: there is none
  std::string start;              // c, as far as it was typed
  std::string head;               // "a.b:"
};

CompletionWord last_word(const std::string& line) {
  size_t begin = line.size();
  const auto belongs = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == ':';
  };
  while (begin > 0 && belongs(line[begin - 1])) --begin;
  const std::string text = line.substr(begin);
  CompletionWord word;
  const size_t separator = text.find_last_of(".:");
  word.start = separator == std::string::npos ? text : text.substr(separator + 1);
  if (separator == std::string::npos) return word;
  word.separator = text[separator];
  word.head = text.substr(0, separator + 1);
  size_t from = 0;
  for (size_t end; (end = text.find_first_of(".:", from)) != std::string::npos && end <= separator; from = end + 1)
    word.path.push_back(text.substr(from, end - from));
  return word;
}

/// Replaces the table on top by the one that its metatable names as `__index`; false where there is none.
bool to_parent(lua_State* L) {
  if (!lua_getmetatable(L, -1)) return false;
  lua_pushliteral(L, "__index");
  lua_rawget(L, -2);
  if (!lua_istable(L, -1)) {
    lua_pop(L, 2);
    return false;
  }
  lua_replace(L, -3);
  lua_pop(L, 1);
  return true;
}

/// Pushes the names that a userdata of ours on top answers to, as its metatable lists them; false where it lists none.
bool push_listed_fields(lua_State* L) {
  if (lua_type(L, -1) != LUA_TUSERDATA || !lua_getmetatable(L, -1)) return false;
  lua_pushliteral(L, "__fields");
  lua_rawget(L, -2);
  lua_remove(L, -2);
  if (lua_istable(L, -1)) return true;
  lua_pop(L, 1);
  return false;
}

/// The field `name` of the value on top takes its place; nil where it has none.
void step_into(lua_State* L, const std::string& name) {
  if (push_listed_fields(L)) {
    const bool listed = lua_getfield(L, -1, name.c_str()) != LUA_TNIL;
    lua_pop(L, 2);
    if (listed) {
      lua_getfield(L, -1, name.c_str());
      lua_replace(L, -2);
      return;
    }
  }
  for (int i = 0; lua_istable(L, -1) && i < max_parents; ++i) {
    lua_pushlstring(L, name.data(), name.size());
    if (lua_rawget(L, -2) != LUA_TNIL) {
      lua_replace(L, -2);
      return;
    }
    lua_pop(L, 1);
    if (!to_parent(L)) break;
  }
  lua_pop(L, 1);
  lua_pushnil(L);
}

void add_keys(lua_State* L, const std::string& start, bool functions_only, std::set<std::string>& names) {
  const int table = lua_gettop(L);
  lua_pushnil(L);
  while (lua_next(L, table)) {
    const bool fits = !functions_only || lua_isfunction(L, -1) || lua_isuserdata(L, -1);
    if (fits && lua_type(L, -2) == LUA_TSTRING && starts_with(lua_tostring(L, -2), start))
      names.insert(lua_tostring(L, -2));
    lua_pop(L, 1);
  }
}

/// Names of the table on top and of those behind it.
void add_members(lua_State* L, const std::string& start, bool functions_only, std::set<std::string>& names) {
  lua_pushvalue(L, -1);
  for (int i = 0; lua_istable(L, -1) && i < max_parents; ++i) {
    add_keys(L, start, functions_only, names);
    if (!to_parent(L)) break;
  }
  lua_pop(L, 1);
}

/// Operators of ATen whose name starts with `prefix` + `start`, without the prefix.
void add_operators(const std::string& prefix, const std::string& start, bool methods, std::set<std::string>& names) {
  const std::string wanted = "aten::" + prefix + start;
  for (const auto& op : c10::Dispatcher::singleton().getAllOpNames()) {
    if (!starts_with(op.name, wanted)) continue;
    const std::string name = op.name.substr(std::string_view("aten::").size() + prefix.size());
    const bool internal = name.empty() || (name[0] == '_' && start.empty()) || name.find('.') != std::string::npos;
    if (internal || names.count(name)) continue;
    const Operator* found = find_operator(op.name);
    if (!found) continue;
    const bool is_method = std::any_of(found->overloads.begin(), found->overloads.end(),
                                       [](const Overload& overload) { return overload.self >= 0; });
    if (!methods || is_method) names.insert(name);
  }
}

void add_tensor_names(lua_State* L, const CompletionWord& word, std::set<std::string>& names) {
  if (word.separator == '.') {
    for (std::string_view field : tensor_fields)
      if (starts_with(field, word.start)) names.emplace(field);
    return;
  }
  push_methods(L);
  add_keys(L, word.start, true, names);
  lua_pop(L, 1);
  add_operators("", word.start, true, names);
}

/// The name "torch" or "torch.linalg" stands for a group of operators.
void add_group(const CompletionWord& word, std::set<std::string>& names) {
  if (word.separator != '.' || word.path.empty() || word.path[0] != "torch") return;
  if (word.path.size() == 1) add_operators("", word.start, false, names);
  const bool group =
      word.path.size() == 2 && (word.path[1] == "linalg" || word.path[1] == "fft" || word.path[1] == "special");
  if (group) add_operators(word.path[1] + "_", word.start, false, names);
}

}  // namespace

std::vector<std::string> completions(lua_State* L, const std::vector<int>& environments, const std::string& line) {
  const CompletionWord word = last_word(line);
  std::set<std::string> names;
  reserve(L, 0, "completion");
  if (word.separator == 0) {
    if (word.start.empty()) return {};
    for (std::string_view keyword : keywords)
      if (starts_with(keyword, word.start)) names.emplace(keyword);
    for (int environment : environments) {
      lua_pushvalue(L, environment);
      add_keys(L, word.start, false, names);
      lua_pop(L, 1);
    }
  } else {
    lua_pushnil(L);
    for (size_t i = 0; i < environments.size() && lua_isnil(L, -1); ++i) {
      lua_pop(L, 1);
      lua_pushvalue(L, environments[i]);
      for (const std::string& part : word.path) step_into(L, part);
    }
    replace_by_data(L, -1);  // a guarded tensor has what a tensor has
    if (test_tensor(L, -1))
      add_tensor_names(L, word, names);
    else if (push_listed_fields(L)) {
      add_keys(L, word.start, word.separator == ':', names);
      lua_pop(L, 1);
    } else if (lua_istable(L, -1))
      add_members(L, word.start, word.separator == ':', names);
    else if (lua_type(L, -1) == LUA_TSTRING && word.separator == ':') {
      lua_getglobal(L, "string");
      add_keys(L, word.start, true, names);
      lua_pop(L, 1);
    }
    lua_pop(L, 1);
    add_group(word, names);
  }
  std::vector<std::string> result;
  for (const std::string& name : names)
    if (!starts_with(name, "__")) result.push_back(word.head + name);
  return result;
}

}  // namespace triage::lua
