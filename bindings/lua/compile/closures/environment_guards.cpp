#include "bindings/lua/compile/closures/environment_guards.h"

#include "bindings/lua/compile/closures/differences.h"
#include "bindings/lua/semantics/chunk.h"
#include "bindings/lua/semantics/libraries.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace triage::lua {
namespace {

constexpr size_t most_inner = 32;  // lines of what lies in tables and functions
constexpr int deepest = 4;

bool is_rewritten(std::string_view upvalue) {
  return upvalue.substr(0, 9) == "__triage_";
}  // what rewritten code calls

class GuardLines {
 public:
  explicit GuardLines(lua_State* L) : L_(L) { reserve(L, 64, "guards"); }

  void add(const std::string& line) { text_ += line + "\n"; }

  /// Of the function on top of the stack.
  void variables_of_function() {
    for (int i = 1; const char* name = lua_getupvalue(L_, -1, i); ++i) {
      if (std::string_view(name) == "_ENV")
        globals(lua_gettop(L_) - 1);
      else if (!is_rewritten(name))
        variable("upvalue", name);
      lua_pop(L_, 1);
    }
  }

  std::string take() { return std::move(text_); }

 private:
  /// The environment is on top of the stack, the function at `function`.
  void globals(int function) {
    const auto names = globals_of(L_, function);
    if (!names || names->count("_ENV")) return add("globals: those that the function may read are unchanged");
    for (const std::string& name : *names) {
      lua_pushlstring(L_, name.data(), name.size());
      lua_rawget(L_, -2);
      if (!is_of_library()) variable("global", name);
      lua_pop(L_, 1);
    }
  }

  bool is_of_library() {
    return is_library_function(L_, -1) || (lua_istable(L_, -1) && library_kind(L_, -1) != LibraryKind::none);
  }

  /// Whose value is on top of the stack.
  void variable(const char* kind, const std::string& name) {
    add(fmt::format("{} '{}'{}", kind, name, held()));
    inside(fmt::format("{} '{}", kind, name), "'", 1);
  }

  /// What is held of the value on top of the stack.
  std::string held() {
    const int top = lua_gettop(L_);
    if (const at::Tensor* tensor = test_tensor(L_, top))
      return " is any " + describe(L_, top) + (tensor->requires_grad() ? ", requires grad" : "");
    switch (lua_type(L_, top)) {
      case LUA_TTABLE:
        return " is the same table, and its contents are unchanged";
      case LUA_TFUNCTION:
        return " is the same function, and everything that it can read is unchanged";
      case LUA_TUSERDATA:
        return " is the same value";
      default:
        return " is " + describe(L_, top);
    }
  }

  /// The plain values and tensors in the value on top of the stack, which is called `name` + `end`.
  void inside(const std::string& name, const std::string& end, int depth) {
    if (depth > deepest || is_of_library()) return;
    const bool is_table = lua_istable(L_, -1), is_script = lua_isfunction(L_, -1) && !lua_iscfunction(L_, -1);
    if ((!is_table && !is_script) || !seen_.insert(lua_topointer(L_, -1)).second) return;
    is_table ? fields(name, end, depth) : upvalues(name, end, depth);
  }

  void fields(const std::string& name, const std::string& end, int depth) {
    std::vector<std::pair<std::string, bool>> keys;  // sorted: their order in the table is by chance
    for (lua_pushnil(L_); lua_next(L_, -2); lua_pop(L_, 1)) {
      const bool is_text = lua_type(L_, -2) == LUA_TSTRING;
      if (is_text && keys.size() < 10 * most_inner)
        keys.emplace_back(std::string(lua_tostring(L_, -2), lua_rawlen(L_, -2)), true);
      if (lua_isinteger(L_, -2) && keys.size() < 10 * most_inner)
        keys.emplace_back(std::to_string(lua_tointeger(L_, -2)), false);
    }
    std::sort(keys.begin(), keys.end());
    for (const auto& [key, is_text] : keys) {
      is_text ? void(lua_pushlstring(L_, key.data(), key.size())) : lua_pushinteger(L_, std::stoll(key));
      lua_rawget(L_, -2);
      inner(name + (is_text ? "." + key : "[" + key + "]"), end, depth);
      lua_pop(L_, 1);
    }
  }

  void upvalues(const std::string& name, const std::string& end, int depth) {
    for (int i = 1; const char* upvalue = lua_getupvalue(L_, -1, i); ++i) {
      if (std::string_view(upvalue) != "_ENV" && !is_rewritten(upvalue))
        inner(fmt::format("upvalue '{}", upvalue), fmt::format("' of {}{}", name, end), depth);
      lua_pop(L_, 1);
    }
  }

  void inner(const std::string& name, const std::string& end, int depth) {
    const bool leads_on = lua_istable(L_, -1) || lua_isfunction(L_, -1);
    if (!leads_on && told_++ < most_inner) add(name + end + held());
    inside(name, end, depth + 1);
  }

  lua_State* L_;
  std::string text_;
  size_t told_ = 0;
  std::unordered_set<const void*> seen_;
};

}  // namespace

std::string environment_guards(lua_State* L, const CompiledFunction& function,
                               const CompiledFunction::ClosureEnvironment& environment) {
  GuardLines lines(L);
  const int base = lua_gettop(L);
  lua_rawgeti(L, LUA_REGISTRYINDEX, function.function);
  const std::vector<std::string> names = parameter_names(L, -1, environment.arguments.size());
  for (size_t i = 0; i < names.size(); ++i)
    if (!is_tensor_argument(environment, i)) lines.add(names[i] + ": is " + environment.arguments[i]);
  if (lua_isfunction(L, -1) && !lua_iscfunction(L, -1)) lines.variables_of_function();
  if (!lua_isfunction(L, -1)) lines.add("the module is the same, and its contents are unchanged");
  lua_settop(L, base);
  return lines.take();
}

}  // namespace triage::lua
