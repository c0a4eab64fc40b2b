#include "bindings/lua/rewriter/extract.h"
#include "bindings/lua/rewriter/rewriter.h"
#include "bindings/lua/semantics/chunk.h"
#include "bindings/lua/semantics/libraries.h"
#include "bindings/lua/snapshot/library_names.h"
#include "bindings/lua/snapshot/snapshot.h"
#include "bindings/lua/state/effects.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/tensors/torch.h"
#include "bindings/lua/values/guarded.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/files/checksum.h"
#include "runtime/files/disk.h"
#include "runtime/messages/printable.h"

#include <fmt/format.h>
#include <triage/error.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <vector>

namespace triage::lua {
namespace {

using capsule::integer;
using capsule::Json;
using capsule::member;
using capsule::text;
using files::Malformed;

int raise_lost(lua_State* L) {
  throw Error(fmt::format("{}; the capsule does not hold it", lua_tostring(L, lua_upvalueindex(1))));
}

/// Functions of the library that make functions, and do nothing else.
constexpr std::string_view makers[] = {"triage.error_on_graph_break",
                                       "triage.disable",
                                       "triage.allow_in_graph",
                                       "triage.nested_compile_region",
                                       "triage.substitute_in_graph",
                                       "triage.assume_constant_result",
                                       "as_result",
                                       "as_exception",
                                       "unwrap",
                                       "tensorcheck"};

/// Calls the object whose number is upvalue 2, of those in the table that is upvalue 1.
int call_made(lua_State* L) {
  lua_rawgeti(L, lua_upvalueindex(1), lua_tointeger(L, lua_upvalueindex(2)));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  return lua_gettop(L);
}

/// A value that raises an error wherever a script uses it.
void push_lost(lua_State* L, const std::string& what) {
  lua_newuserdatauv(L, 0, 0);
  lua_newtable(L);
  for (const char* const event : {"__index", "__newindex", "__call", "__len", "__concat", "__add", "__sub", "__mul",
                                  "__div", "__unm", "__eq", "__lt", "__le", "__tostring", "__pairs"}) {
    lua_pushlstring(L, what.data(), what.size());
    lua_pushcclosure(L, guarded<raise_lost>, 1);
    lua_setfield(L, -2, event);
  }
  lua_setmetatable(L, -2);
}

class Restorer {
 public:
  Restorer(lua_State* L, const Json& snapshot, const capsule::RestoredTensors& tensors)
      : L_(L),
        objects_(member(snapshot, "objects")),
        cells_(member(snapshot, "cells")),
        chunks_(member(snapshot, "chunks")),
        tensors_(tensors),
        cell_owners_(cells_.size()) {
    reserve(L, 8 * max_snapshot_depth, "a snapshot");
    lua_newtable(L);
    made_ = lua_gettop(L);
    lua_newtable(L);
    made_tensors_ = lua_gettop(L);
  }

  void push(const Json& value, int depth = 0) {
    if (depth > max_snapshot_depth) throw Malformed("its values are nested too deep");
    charge(L_, 64);
    if (value.is_null()) return lua_pushnil(L_);
    if (value.is_boolean()) return lua_pushboolean(L_, value.get<bool>());
    if (value.is_number_integer()) return lua_pushinteger(L_, integer(value, "value"));
    if (value.is_string()) return push_string(value.get_ref<const std::string&>());
    if (!value.is_object() || value.size() != 1) throw Malformed("a value in it is damaged");
    const auto only = value.begin();
    const std::string& kind = only.key();
    const Json& content = only.value();
    if (kind == "d") return push_float(text(content, "d"));
    if (kind == "b") return push_string(bytes(text(content, "b")));
    if (kind == "t") return push_tensor_number(integer(content, "t"));
    if (kind == "o") return push_object(integer(content, "o"), depth);
    if (kind == "lib") return push_library(content);
    if (kind == "guarded") return push_guarded_tensor(content, depth);
    if (kind == "lost") return push_lost(L_, text(content, "lost"));
    throw Malformed("a value in it has an unknown kind");
  }

  void set_globals(const Json& globals) {
    for (const Json& pair : globals) {
      if (!pair.is_array() || pair.size() != 2) throw Malformed("a global in it is damaged");
      push_script_globals(L_);
      push_string(text(pair[0], "globals"));
      push(pair[1]);
      lua_rawset(L_, -3);
      lua_pop(L_, 1);
    }
  }

 private:
  struct CellOwner {
    int64_t function = -1;  // its number
    int upvalue = 0;
  };

  void push_string(const std::string& bytes) {
    charge_string(L_, bytes.size());
    lua_pushlstring(L_, bytes.data(), bytes.size());
  }

  void push_float(const std::string& number) {
    double value = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (error != std::errc() || end != number.data() + number.size()) throw Malformed("a number in it is damaged");
    lua_pushnumber(L_, value);
  }

  static std::string bytes(const std::string& hex) {
    std::string bytes;
    for (size_t i = 0; i + 1 < hex.size(); i += 2) {
      unsigned byte = 0;
      if (std::from_chars(hex.data() + i, hex.data() + i + 2, byte, 16).ptr != hex.data() + i + 2)
        throw Malformed("a string in it is damaged");
      bytes += static_cast<char>(byte);
    }
    return bytes;
  }

  void push_tensor_number(int64_t number) {
    if (lua_rawgeti(L_, made_tensors_, number) != LUA_TNIL) return;
    lua_pop(L_, 1);
    push_tensor(L_, tensors_.at(number));
    lua_pushvalue(L_, -1);
    lua_rawseti(L_, made_tensors_, number);
  }

  void push_guarded_tensor(const Json& parts, int depth) {
    if (!parts.is_array() || parts.size() != 2) throw Malformed("a guarded tensor in it is damaged");
    push_core(L_);
    lua_getfield(L_, -1, "guarded");  // which checks that the flags are those of the data
    lua_replace(L_, -2);
    lua_pushliteral(L_, "guard");
    for (const Json& part : parts) push(part, depth + 1);
    lua_call(L_, 3, 1);
  }

  void push_library(const Json& list) {
    std::vector<std::string> path;
    std::string name;
    for (const Json& part : list) {
      path.push_back(text(part, "lib"));
      name += (name.empty() ? "" : ".") + path.back();
    }
    if (path.empty()) throw Malformed("a name of the library in it is empty");
    if (!push_library_value(L_, path))
      push_lost(L_, fmt::format("`{}` is not there for scripts of this kind (a trusted replay has all of the library)",
                                name));
  }

  void push_object(int64_t number, int depth) {
    if (number < 0 || static_cast<size_t>(number) >= objects_.size()) throw Malformed("it lacks an object");
    if (lua_rawgeti(L_, made_, number) != LUA_TNIL) return;
    lua_pop(L_, 1);
    const Json& object = objects_[static_cast<size_t>(number)];
    if (!object.is_object()) throw Malformed("an object in it is damaged");
    if (object.contains("table"))
      push_table(object, number, depth);
    else if (object.contains("module"))
      push_module(object, number, depth);
    else if (object.contains("function"))
      push_function(object, number, depth);
    else if (object.contains("made"))
      push_made(object, number, depth);
    else
      push_lost(L_, text(member(object, "lost"), "lost"));
  }

  /// The value on top of the stack is that object: others that lead to it get the same.
  void remember(int64_t number) {
    lua_pushvalue(L_, -1);
    lua_rawseti(L_, made_, number);
  }

  void set_pairs(const Json& pairs, int table, int depth) {
    for (const Json& pair : pairs) {
      if (!pair.is_array() || pair.size() != 2) throw Malformed("a field in it is damaged");
      push(pair[0], depth + 1);
      if (lua_isnil(L_, -1) || lua_rawequal(L_, -1, -1) == 0) throw Malformed("a key in it is nil or NaN");
      check_key(L_, -1);
      push(pair[1], depth + 1);
      lua_rawset(L_, table);
    }
  }

  void push_table(const Json& object, int64_t number, int depth) {
    lua_newtable(L_);
    const int table = lua_gettop(L_);
    remember(number);
    set_pairs(object["table"], table, depth);
    if (const auto meta = object.find("meta"); meta != object.end()) {
      push_script_globals(L_);
      lua_getfield(L_, -1, "setmetatable");  // with what scripts of this state may not do
      lua_remove(L_, -2);
      lua_pushvalue(L_, table);
      push(*meta, depth + 1);
      if (lua_istable(L_, -1))
        lua_call(L_, 2, 0);
      else
        lua_pop(L_, 3);
    }
    lua_settop(L_, table);
  }

  void push_module(const Json& object, int64_t number, int depth) {
    push_modules_function(L_, "thawed");
    push_string(text(object["module"], "module"));
    push_string(text(member(object, "name"), "name"));
    lua_call(L_, 2, 1);
    const int module = lua_gettop(L_);
    if (!lua_istable(L_, module)) throw Malformed("a module in it is of an unknown class");
    remember(number);
    set_pairs(member(object, "fields"), module, depth);
    push_modules_function(L_, "finish");
    lua_pushvalue(L_, module);
    for (const char* const list : {"order", "kinds"}) {
      lua_newtable(L_);
      set_pairs(member(object, list), lua_gettop(L_), depth);
    }
    lua_call(L_, 3, 0);
  }

  /// What a call of the library gives; where an argument leads back to it, that is a function which calls it.
  void push_made(const Json& object, int64_t number, int depth) {
    lua_pushvalue(L_, made_);
    lua_pushinteger(L_, number);
    lua_pushcclosure(L_, guarded<call_made>, 2);
    remember(number);
    lua_pop(L_, 1);
    const std::string name = text(object["made"], "made");
    if (std::find(std::begin(makers), std::end(makers), name) == std::end(makers))
      throw Malformed(fmt::format("`{}` in it makes no functions", messages::printable(name)));
    std::vector<std::string> path;
    for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
      end = name.find('.', begin);
      path.push_back(name.substr(begin, end - begin));
    }
    const int function = lua_gettop(L_) + 1;
    if (!push_library_value(L_, path))
      return push_lost(L_, fmt::format("`{}` is not there for scripts of this kind", name));
    const Json& arguments = member(object, "arguments");
    if (arguments.size() > 8) throw Malformed("a call of the library in it has too many arguments");
    for (const Json& argument : arguments) push(argument, depth + 1);
    lua_call(L_, lua_gettop(L_) - function, 1);
    remember(number);
  }

  void push_function(const Json& object, int64_t number, int depth) {
    const int64_t chunk = integer(member(object, "chunk"), "chunk");
    if (chunk < 0 || static_cast<size_t>(chunk) >= chunks_.size()) throw Malformed("it lacks the text of a function");
    const Json& text_of_chunk = chunks_[static_cast<size_t>(chunk)];
    const std::string source = text(member(text_of_chunk, "text"), "text"),
                      name = text(member(text_of_chunk, "name"), "name");
    if (text(member(text_of_chunk, "hash"), "hash") != files::checksum_text(files::checksum(source)))
      throw Malformed("its source does not have the hash that it states");
    push_main(source, name, integer(object["function"], "function"));
    const int function = lua_gettop(L_);
    if (!lua_isfunction(L_, function)) throw Malformed("a function in it is none");
    remember(number);
    for (const Json& pair : member(object, "upvalues")) set_upvalue(pair, number, function, depth);
  }

  /// The function alone: nothing else of its chunk runs.
  void push_main(const std::string& source, const std::string& name, int64_t number) {
    const std::string chunk_name = name.empty() || (name[0] != '@' && name[0] != '=') ? "=capsule" : name;
    std::string part;
    try {
      if (number < 1 || number > 1'000'000) throw Malformed("a function in it has a damaged number");
      part = rewriter::extract_function(source, chunk_name, static_cast<int>(number));
    } catch (const rewriter::SyntaxError& error) {
      throw Malformed(fmt::format("the text of a function in it is damaged: {}", error.what()));
    }
    ChunkOptions options;
    push_script_globals(L_);
    options.env = lua_gettop(L_);
    options.policy = is_policy(L_);
    if (load_chunk(L_, part, chunk_name.c_str(), options) != LUA_OK)
      throw Malformed(fmt::format("the text of a function in it cannot be loaded: {}", error_text(L_, -1)));
    lua_remove(L_, options.env);
    lua_call(L_, 0, 1);
  }

  void set_upvalue(const Json& pair, int64_t number, int function, int depth) {
    if (!pair.is_array() || pair.size() != 2) throw Malformed("a variable in it is damaged");
    const std::string name = text(pair[0], "upvalues");
    const int64_t cell = integer(pair[1], "upvalues");
    if (cell < 0 || static_cast<size_t>(cell) >= cell_owners_.size()) throw Malformed("it lacks a variable");
    int place = 1;
    for (const char* own = nullptr; (own = lua_getupvalue(L_, function, place)); ++place) {
      lua_pop(L_, 1);
      if (name == own) break;
    }
    if (!lua_getupvalue(L_, function, place))
      throw Malformed("a function in it has not the variables that it should have");
    lua_pop(L_, 1);
    CellOwner& owner = cell_owners_[static_cast<size_t>(cell)];
    if (owner.function >= 0) {
      lua_rawgeti(L_, made_, owner.function);
      lua_upvaluejoin(L_, function, place, lua_gettop(L_), owner.upvalue);
      lua_pop(L_, 1);
      return;
    }
    owner = {number, place};
    push(cells_[static_cast<size_t>(cell)], depth + 1);
    lua_setupvalue(L_, function, place);
  }

  lua_State* L_;
  const Json &objects_, &cells_, &chunks_;
  const capsule::RestoredTensors& tensors_;
  std::vector<CellOwner> cell_owners_;
  int made_ = 0, made_tensors_ = 0;  // stack indices of tables: what there is already, by number
};

}  // namespace

void push_snapshot(lua_State* L, const Json& snapshot, const capsule::RestoredTensors& tensors) {
  const Json& roots = member(snapshot, "roots");
  const int first = lua_gettop(L) + 1;
  Restorer restorer(L, snapshot, tensors);  // leaves two tables below what follows
  restorer.set_globals(member(snapshot, "globals"));
  reserve(L, roots.size(), "values of a capsule");
  for (const Json& root : roots) restorer.push(root);
  lua_remove(L, first);
  lua_remove(L, first);
}

}  // namespace triage::lua
