#include "bindings/lua/snapshot/library_names.h"

#include "bindings/lua/semantics/libraries.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/tensors/torch.h"
#include "bindings/lua/values/constants.h"

#include <utility>

namespace triage::lua {
namespace {

constexpr size_t deepest = 3;

class LibraryWalk {
 public:
  explicit LibraryWalk(lua_State* L) : L_(L) { reserve(L, 8 * deepest, "the library"); }

  void fields(int table) {
    for (lua_pushnil(L_); lua_next(L_, table); lua_pop(L_, 1))
      if (lua_type(L_, -2) == LUA_TSTRING) field(lua_tostring(L_, -2));
  }

  LibraryNames take() { return std::move(names_); }

 private:
  /// The value on top of the stack.
  void field(const char* name) {
    const int value = lua_gettop(L_);
    const bool table = lua_istable(L_, value) && library_kind(L_, value) == LibraryKind::library;
    const bool function = is_library_function(L_, value) || (in_view_ && lua_iscfunction(L_, value));
    if (!table && !function && !test_constant(L_, value)) return;
    path_.emplace_back(name);
    if (names_.emplace(lua_topointer(L_, value), path_).second && table && path_.size() < deepest) {
      fields(value);
      behind_view(value);
    }
    path_.pop_back();
  }

  /// Of a read-only view.
  void behind_view(int table) {
    if (!lua_getmetatable(L_, table)) return;
    lua_pushliteral(L_, "__index");
    const bool outer = std::exchange(in_view_, true);
    if (lua_rawget(L_, -2) == LUA_TTABLE) fields(lua_gettop(L_));
    in_view_ = outer;
    lua_settop(L_, table);
  }

  lua_State* L_;
  bool in_view_ = false;  // nobody has changed what is behind one
  std::vector<std::string> path_;
  LibraryNames names_;
};

}  // namespace

LibraryNames library_names(lua_State* L) {
  const int top = lua_gettop(L);
  LibraryWalk walk(L);
  push_script_globals(L);
  walk.fields(top + 1);
  lua_settop(L, top);
  return walk.take();
}

bool push_library_value(lua_State* L, const std::vector<std::string>& path) {
  const int top = lua_gettop(L);
  push_script_globals(L);
  for (size_t i = 0; i < path.size(); ++i) {
    if (!lua_istable(L, -1) || (i > 0 && library_kind(L, -1) != LibraryKind::library)) break;
    lua_pushlstring(L, path[i].data(), path[i].size());
    if (i == 0)
      lua_rawget(L, -2);
    else
      lua_gettable(L, -2);  // through views, and operators that are made when they are first used
    lua_remove(L, -2);
    if (i + 1 < path.size()) continue;
    const bool found = (lua_istable(L, -1) && library_kind(L, -1) == LibraryKind::library) ||
                       is_library_function(L, -1) || test_constant(L, -1) || lua_iscfunction(L, -1);
    if (found) return true;
  }
  lua_settop(L, top);
  return false;
}

void push_modules_function(lua_State* L, const char* name) {
  push_core(L);
  lua_getfield(L, -1, "modules");
  lua_getfield(L, -1, name);
  lua_replace(L, -3);
  lua_pop(L, 1);
}

}  // namespace triage::lua
