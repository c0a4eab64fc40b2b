// Registry tables with weak keys: function -> id; table or function -> branch depth at birth; function -> the function
// that made it. The latter two are made again for every capture, and for every outermost branch of natural Lua.
#include "bindings/lua/semantics/created.h"

#include "bindings/lua/semantics/allowed_writes.h"
#include "bindings/lua/semantics/intrinsics.h"
#include "bindings/lua/semantics/libraries.h"
#include "bindings/lua/semantics/wrapping.h"
#include "bindings/lua/state/effects.h"
#include "bindings/lua/state/userdata.h"

namespace triage::lua {
namespace {

const char kIds = 0;  // its address is the registry key

/// What created count in: captures with their branches, and the branches of natural Lua with those inside of them.
struct Layer {
  uint64_t (*serial)() noexcept;  // 0: none now
  int (*depth)() noexcept;
  const char *created, *makers, *known;  // registry keys; the last: of which serial the tables are
};
const char kCreated[2] = {}, kMakers[2] = {}, kKnown[2] = {};
const Layer kLayers[] = {{current_capture, current_branch, &kCreated[0], &kMakers[0], &kKnown[0]},
                         {current_selection, selection_depth, &kCreated[1], &kMakers[1], &kKnown[1]}};
const Layer& kCapture = kLayers[0];
const Layer& kSelection = kLayers[1];

/// A table of the layer's current serial; what an earlier one left is dropped.
void push_table(lua_State* L, const Layer& layer, const char* key) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, layer.known);
  const auto known = static_cast<uint64_t>(lua_tointeger(L, -1));
  lua_pop(L, 1);
  if (known != layer.serial()) {
    for (const char* const table : {layer.created, layer.makers}) {
      push_new_weak_table(L, table);
      lua_pop(L, 1);
    }
    lua_pushinteger(L, static_cast<lua_Integer>(layer.serial()));
    lua_rawsetp(L, LUA_REGISTRYINDEX, layer.known);
  }
  lua_rawgetp(L, LUA_REGISTRYINDEX, key);
}

/// Was the value on top created in this serial, at this depth of branches or further in? Pops it.
bool pop_is_created(lua_State* L, const Layer& layer, int depth) {
  push_table(L, layer, layer.created);
  lua_insert(L, -2);
  const bool known = lua_rawget(L, -2) == LUA_TNUMBER;
  const bool created = known && lua_tointeger(L, -1) >= depth;
  lua_pop(L, 2);
  return created;
}

void push_running_function(lua_State* L) {
  lua_Debug frame;
  if (lua_getstack(L, 1, &frame))
    lua_getinfo(L, "f", &frame);
  else
    lua_pushnil(L);
}

}  // namespace

int64_t function_id(lua_State* L, int index) {
  index = lua_absindex(L, index);
  push_weak_table(L, &kIds);
  lua_pushvalue(L, index);
  lua_rawget(L, -2);
  const lua_Integer id = lua_tointeger(L, -1);
  lua_pop(L, 2);
  return id;
}

void set_function_id(lua_State* L, int index, int64_t id) {
  index = lua_absindex(L, index);
  push_weak_table(L, &kIds);
  lua_pushvalue(L, index);
  lua_pushinteger(L, id);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

void mark_created(lua_State* L, int index) {
  index = lua_absindex(L, index);
  for (const Layer& layer : kLayers) {
    if (!layer.serial()) continue;
    push_table(L, layer, layer.created);
    lua_pushvalue(L, index);
    lua_pushinteger(L, layer.depth());
    lua_rawset(L, -3);
    lua_pop(L, 1);
  }
}

void mark_created_function(lua_State* L, int index) {
  index = lua_absindex(L, index);
  mark_created(L, index);
  for (const Layer& layer : kLayers) {
    if (!layer.serial()) continue;
    push_table(L, layer, layer.makers);
    lua_pushvalue(L, index);
    push_running_function(L);
    lua_rawset(L, -3);
    lua_pop(L, 1);
  }
}

namespace {

/// Is the upvalue that the function at level 1 took from `levels_out` functions out a variable of this capture, or of
/// the branch at `depth`?
bool owns_upvalue(lua_State* L, const Layer& layer, int levels_out, int depth) {
  // The variable belongs to the call that made the outermost function on the way to it.
  push_running_function(L);
  for (; levels_out > 1 && !lua_isnil(L, -1); levels_out--) {
    push_table(L, layer, layer.makers);
    lua_insert(L, -2);
    lua_rawget(L, -2);
    lua_remove(L, -2);
  }
  return pop_is_created(L, layer, depth);
}

constexpr const char* kAllSamples =
    " is not allowed in a branch of an `if` whose condition is a mask: that branch runs for every sample";

}  // namespace

void note_variable_write(lua_State* L, const char* name, int levels_out, int selecting) {
  go_on_unwinding(L);
  const std::string what = std::string(levels_out > 0 ? "a write to upvalue '" : "a write to global '") + name + "'";
  const auto outlives = [&](const Layer& layer) {
    const int depth = layer.depth() - selecting;
    return layer.serial() && !(levels_out > 0 && owns_upvalue(L, layer, levels_out, depth));
  };
  if ((levels_out == 0 || selecting < selection_depth()) && outlives(kSelection))
    refuse_write(L, what + kAllSamples,
                 "Assign to a local variable in the branch itself: triage selects its value per sample.");
  if (!outlives(kCapture)) return;
  if (effects_allowed()) return levels_out > 0 ? note_allowed_upvalue(L, name) : note_allowed_global(L, name);
  if (levels_out > 0 && current_branch() > 0 && owns_upvalue(L, kCapture, levels_out, 0)) {
    return break_graph(L, capture::Break::outside_write, what + ", a variable from outside of the branch",
                       "A branch runs for every row: return the value from the branch instead.");
  }
  break_graph(L, capture::Break::outside_write, what + " outlives the call",
              "Return the value instead, or keep it in a local of the function.");
}

namespace {

/// Was the value at `index` there before the serial, or the innermost branch?
bool is_older(lua_State* L, const Layer& layer, int index) {
  if (!layer.serial()) return false;
  lua_pushvalue(L, index);
  return !pop_is_created(L, layer, layer.depth());
}

int call_stateful(lua_State* L) {
  lua_Debug frame;
  lua_getstack(L, 0, &frame);
  lua_getinfo(L, "f", &frame);
  note_state_use(L, lua_gettop(L));
  lua_pop(L, 1);
  return hand_on(L);
}

}  // namespace

void mark_stateful(lua_State* L, int index) {
  index = lua_absindex(L, index);
  lua_pushvalue(L, index);
  wrap_function(L, call_stateful);
  mark_created(L, -1);
  lua_replace(L, index);
}

void note_state_use(lua_State* L, int index) {
  go_on_unwinding(L);
  if (is_older(L, kSelection, index))
    refuse_write(L, std::string("a step of an iterator or coroutine from outside of the branch") + kAllSamples,
                 "Step it before the `if`, and use the result in the branch.");
  if (is_older(L, kCapture, index))
    break_graph(L, capture::Break::outside_write, "a step of an iterator or coroutine that existed before the call",
                "Create it in the function; or step it outside, and pass the result.");
}

void note_table_write(lua_State* L, int index) {
  go_on_unwinding(L);
  bump_epoch(L);
  note_library_write(L, index);
  if (is_older(L, kSelection, index))
    refuse_write(L, std::string("a write to a table from outside of the branch") + kAllSamples,
                 "Assign to a local variable in the branch, and write it to the table after the `if`.");
  if (!is_older(L, kCapture, index)) return;
  if (effects_allowed()) return note_allowed_table(L, index);
  const bool in_branch = current_branch() > 0;
  break_graph(
      L, capture::Break::outside_write,
      in_branch ? "a write to a table from outside of the branch" : "a write to a table that existed before the call",
      in_branch ? "A branch runs for every row: return the value from the branch instead."
                : "Write to a table made in the function, or return the value.");
}

}  // namespace triage::lua
