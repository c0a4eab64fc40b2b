#include "bindings/lua/flags/location_tree.h"

#include "bindings/lua/flags/flags_library.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/describe.h"

#include <triage/error.h>

#include <memory>
#include <string>

/// `LocationTree` and `WeightedLocationTree` as Lua values. What a tree holds counts against the budget of the script
/// that fills it.
namespace triage::lua {
namespace {

const char* const tree_type = "LocationTree";
const char* const weighted_type = "WeightedLocationTree";

struct TreeBox {
  std::unique_ptr<LocationTree> tree;
  int64_t bytes = 0;       // of what was charged
  int64_t components = 0;  // of paths, those that paths share counted again
  uint64_t path_bytes = 0, pattern_bytes = 0, weights = 0;
};

TreeBox* test_box(lua_State* L, int index) {
  auto* box = static_cast<TreeBox*>(luaL_testudata(L, index, tree_type));
  return box ? box : static_cast<TreeBox*>(luaL_testudata(L, index, weighted_type));
}

TreeBox& check_box(lua_State* L, const char* method) {
  TreeBox* box = test_box(L, 1);
  if (!box || !box->tree)
    throw InputError(std::string(method) + ": expected a LocationTree; call it with a colon, as in tree:" + method +
                     "(...), got " + describe(L, 1));
  return *box;
}

WeightedLocationTree& check_weighted(lua_State* L, const char* method) {
  auto* tree = dynamic_cast<WeightedLocationTree*>(check_box(L, method).tree.get());
  if (!tree) throw InputError(std::string(method) + ": only a WeightedLocationTree has weights.");
  return *tree;
}

std::string check_text(lua_State* L, int index, const char* method, const char* what) {
  if (lua_type(L, index) != LUA_TSTRING)
    throw InputError(std::string(method) + ": expected " + what + ", got " + describe(L, index));
  return lua_tostring(L, index);
}

double check_weight(lua_State* L, int index, const char* method) {
  if (lua_type(L, index) != LUA_TNUMBER)
    throw InputError(std::string(method) + ": expected a number as weight, got " + describe(L, index));
  return lua_tonumber(L, index);
}

void push_ids(lua_State* L, const std::map<std::string, int64_t>& ids) {
  lua_createtable(L, 0, static_cast<int>(ids.size()));
  for (const auto& [path, id] : ids) {
    lua_pushinteger(L, id);
    lua_setfield(L, -2, path.c_str());
  }
}

/// {max_locations = ...}, or nothing.
int64_t read_max_locations(lua_State* L, const char* who) {
  if (lua_isnoneornil(L, 1)) return 1024;
  if (lua_type(L, 1) != LUA_TTABLE)
    throw InputError(std::string(who) + ": expected options, as in " + who + "{max_locations = 1024}, got " +
                     describe(L, 1));
  int64_t max_locations = 1024;
  lua_pushnil(L);
  while (lua_next(L, 1)) {
    const std::string key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : describe(L, -2);
    if (key != "max_locations")
      throw InputError(std::string(who) + ": there is no option '" + key + "' (options: max_locations)");
    int is_integer = 0;
    max_locations = lua_type(L, -1) == LUA_TNUMBER ? lua_tointegerx(L, -1, &is_integer) : 0;
    if (!is_integer)
      throw InputError(std::string(who) + ": expected an integer as max_locations, got " + describe(L, -1));
    lua_pop(L, 1);
  }
  return max_locations;
}

template <typename Tree>
int new_tree(lua_State* L) {
  const char* type = std::is_same_v<Tree, WeightedLocationTree> ? weighted_type : tree_type;
  auto tree = std::make_unique<Tree>(read_max_locations(L, type));
  new (lua_newuserdatauv(L, sizeof(TreeBox), 0)) TreeBox{std::move(tree)};
  luaL_setmetatable(L, type);
  return 1;
}

int tree_gc(lua_State* L) {
  if (TreeBox* box = test_box(L, 1)) {
    context(L).tensor_bytes -= std::exchange(box->bytes, 0);
    box->tree.reset();
  }
  return 0;
}

/// Policies cannot make trees that take long to prune, or names that are no names.
void check_size(lua_State* L, const char* method, const std::string& text, int64_t components) {
  constexpr size_t most_bytes = 1000;
  constexpr int64_t most_components = 50'000;
  if (!context(L).sandboxed || (text.size() <= most_bytes && components <= most_components)) return;
  throw LimitError(std::string(method) + ": a policy may use paths and patterns of " + std::to_string(most_bytes) +
                   " bytes, and " + std::to_string(most_components) + " components in one tree");
}

/// Ids are chosen again when the tree has changed: each path is compared with each pattern that has a weight.
LocationTree& charge_ids(lua_State* L, TreeBox& box) {
  constexpr uint64_t per_location = 20, steps_per_instruction = 64, most_steps = 2'000'000'000;
  const uint64_t steps = box.path_bytes * box.pattern_bytes;
  if (context(L).sandboxed && steps > most_steps)
    throw LimitError("in one tree of a policy, the bytes of all paths times the bytes of all patterns may be at most " +
                     std::to_string(most_steps) + ", got " + std::to_string(steps));
  charge(L, 0, 0, per_location * static_cast<uint64_t>(box.tree->size()) + steps / steps_per_instruction);
  return *box.tree;
}

int tree_add_path(lua_State* L) {
  TreeBox& box = check_box(L, "add_path");
  const std::string path = check_text(L, 2, "add_path", "a dotted path such as \"encoder.2\"");
  const auto components = 1 + std::count(path.begin(), path.end(), '.');
  const auto bytes = static_cast<int64_t>(256 * components + 2 * static_cast<int64_t>(path.size()));
  charge(L, 0, static_cast<size_t>(bytes), static_cast<uint64_t>(components));
  check_size(L, "add_path", path, box.components + components);
  box.tree->add_path(path);
  box.components += components;
  box.path_bytes += path.size();
  box.bytes += bytes;
  context(L).tensor_bytes += bytes;
  lua_settop(L, 1);
  return 1;  // itself, so that calls can be joined
}

int tree_build_ids(lua_State* L) {
  LocationTree& tree = charge_ids(L, check_box(L, "build_ids"));
  push_ids(L, tree.build_ids());
  return 1;
}

int tree_get_location(lua_State* L) {
  LocationTree& tree = charge_ids(L, check_box(L, "get_location"));
  lua_pushinteger(L, tree.get_location(check_text(L, 2, "get_location", "a dotted path such as \"encoder.2\"")));
  return 1;
}

int tree_get_path(lua_State* L) {
  LocationTree& tree = charge_ids(L, check_box(L, "get_path"));
  lua_pushstring(L, tree.get_path(check_text(L, 2, "get_path", "a dotted path such as \"encoder.2\"")).c_str());
  return 1;
}

int tree_to_dict(lua_State* L) {
  push_ids(L, charge_ids(L, check_box(L, "to_dict")).to_dict());
  return 1;
}

int tree_tostring(lua_State* L) {
  const std::string text = charge_ids(L, check_box(L, "tostring")).text();
  charge_text(L, text.size());
  lua_pushlstring(L, text.data(), text.size());
  return 1;
}

int tree_set_weight(lua_State* L) {
  WeightedLocationTree& tree = check_weighted(L, "set_weight");
  const std::string pattern = check_text(L, 2, "set_weight", "a pattern such as \"head.*\"");
  charge(L, 0, 256 + 2 * pattern.size(), 100);
  TreeBox& box = check_box(L, "set_weight");
  check_size(L, "set_weight", pattern, static_cast<int64_t>(++box.weights));
  box.pattern_bytes += pattern.size();
  tree.set_weight(pattern, check_weight(L, 3, "set_weight"));
  lua_settop(L, 1);
  return 1;
}

int tree_set_default_weight(lua_State* L) {
  check_weighted(L, "set_default_weight").set_default_weight(check_weight(L, 2, "set_default_weight"));
  lua_settop(L, 1);
  return 1;
}

void make_metatable(lua_State* L, const char* type, bool weighted) {
  static const luaL_Reg functions[] = {
      {"__gc", guarded<tree_gc>}, {"__tostring", guarded<tree_tostring>}, {nullptr, nullptr}};
  static const LimitedFunction methods[] = {{"add_path", guarded<tree_add_path>, 2},
                                            {"build_ids", guarded<tree_build_ids>, 1},
                                            {"get_location", guarded<tree_get_location>, 2},
                                            {"get_path", guarded<tree_get_path>, 2},
                                            {"to_dict", guarded<tree_to_dict>, 1}};
  static const LimitedFunction weighted_methods[] = {{"set_weight", guarded<tree_set_weight>, 3},
                                                     {"set_default_weight", guarded<tree_set_default_weight>, 2}};
  luaL_newmetatable(L, type);
  luaL_setfuncs(L, functions, 0);
  lua_newtable(L);
  set_limited(L, "tree:", methods);
  if (weighted) set_limited(L, "tree:", weighted_methods);
  lua_setfield(L, -2, "__index");
  lua_pushstring(L, type);
  lua_setfield(L, -2, "__metatable");
  lua_pop(L, 1);
}

}  // namespace

LocationTree* test_location_tree(lua_State* L, int index) {
  TreeBox* box = test_box(L, index);
  return box ? box->tree.get() : nullptr;
}

void add_location_trees(lua_State* L) {
  make_metatable(L, tree_type, false);
  make_metatable(L, weighted_type, true);
  static const LimitedFunction functions[] = {{tree_type, guarded<new_tree<LocationTree>>, 1},
                                              {weighted_type, guarded<new_tree<WeightedLocationTree>>, 1}};
  set_limited(L, "", functions);
}

}  // namespace triage::lua
