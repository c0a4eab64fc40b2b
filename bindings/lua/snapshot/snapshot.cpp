// VALUE: null, true, false, an integer, a string; {"d": "0.5"} a float; {"b": "00ff"} a string that is no UTF-8; {"t":
// n} a tensor;
// {"o": n} an object; {"lib": [path]} of the library; {"lost": what} what a capsule cannot hold.
// OBJECT: {"table": [[VALUE, VALUE]], "meta": VALUE}; {"module": class, "name", "order", "kinds", "fields": [[VALUE,
// VALUE]]};
// {"function": number in its chunk, "chunk": n, "line": n, "upvalues": [[name, cell]]}, {"made": function of the
// library, "arguments": [VALUE]}.
#include "bindings/lua/snapshot/snapshot.h"

#include "bindings/lua/capture/user_code.h"
#include "bindings/lua/semantics/chunk.h"
#include "bindings/lua/semantics/intrinsics.h"
#include "bindings/lua/semantics/libraries.h"
#include "bindings/lua/snapshot/library_names.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/guarded.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/files/checksum.h"
#include "runtime/files/disk.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

namespace triage::lua {
namespace {

using capsule::Json;

constexpr int max_values = 100'000;
constexpr size_t longest_string = 1 << 20;
constexpr const char* masked_value = "masked";
constexpr int64_t function_number = (int64_t{1} << 24) - 1;  // of a function id (semantics/chunk.cpp)

bool is_utf8(const std::string& text) {
  try {
    (void)Json(text).dump();
  } catch (const Json::exception&) {
    return false;
  }
  return true;
}

class SnapshotWriter {
 public:
  SnapshotWriter(lua_State* L, const SnapshotOptions& options) : L_(L), options_(options), library_(library_names(L)) {
    reserve(L, 6 * max_snapshot_depth, "a snapshot");
  }

  Json value(int index, const std::string& name, int depth) {
    index = lua_absindex(L_, index);
    if (++values_ > max_values) return lost(name, "more values than a capsule holds");
    if (depth > max_snapshot_depth) return lost(name, "values that are nested too deep");
    const bool masked = std::find(options_.masked.begin(), options_.masked.end(), name) != options_.masked.end();
    if (masked && !test_tensor(L_, index) && !lua_isfunction(L_, index)) return lost(name, masked_value);
    switch (lua_type(L_, index)) {
      case LUA_TNIL:
        return nullptr;
      case LUA_TBOOLEAN:
        return lua_toboolean(L_, index) != 0;
      case LUA_TNUMBER:
        if (lua_isinteger(L_, index)) return static_cast<int64_t>(lua_tointeger(L_, index));
        return {{"d", fmt::format("{:.17g}", lua_tonumber(L_, index))}};
      case LUA_TSTRING:
        return string(index, name);
      case LUA_TTABLE:
        return table(index, name, depth);
      case LUA_TFUNCTION:
        return function(index, name, depth);
      default:
        return userdata(index, name, masked, depth);
    }
  }

  Json take(Json roots) {
    return {{"roots", std::move(roots)},    {"objects", std::move(objects_)}, {"cells", std::move(cells_)},
            {"chunks", std::move(chunks_)}, {"globals", std::move(globals_)}, {"missing", std::move(missing_)},
            {"masked", left_out_}};
  }

 private:
  Json lost(const std::string& name, const std::string& what) {
    left_out_ |= what == masked_value;
    missing_.push_back(fmt::format("'{}' is not in it: {}", name, what));
    return {{"lost", fmt::format("'{}': {}", name, what)}};
  }

  Json string(int index, const std::string& name) {
    size_t length = 0;
    const char* const data = lua_tolstring(L_, index, &length);
    if (length > longest_string) return lost(name, "a string of more than 1 MiB");
    std::string text(data, length);
    if (is_utf8(text)) return text;
    std::string hex;
    for (const unsigned char byte : text) hex += fmt::format("{:02x}", byte);
    return {{"b", hex}};
  }

  const std::vector<std::string>* of_library(int index) const {
    const auto found = library_.find(lua_topointer(L_, index));
    return found == library_.end() ? nullptr : &found->second;
  }

  /// A number for the object at `index`; `fresh` where it had none.
  std::pair<size_t, bool> number_of(int index) {
    const auto [found, fresh] = numbers_.emplace(lua_topointer(L_, index), objects_.size());
    if (fresh) objects_.push_back(nullptr);  // filled in when what it leads to is known
    return {found->second, fresh};
  }

  Json pairs(int index, const std::string& name, int depth) {
    Json list = Json::array();
    for (lua_pushnil(L_); lua_next(L_, index); lua_pop(L_, 1)) {
      const std::string field = lua_type(L_, -2) == LUA_TSTRING ? lua_tostring(L_, -2) : name;
      Json key = value(-2, name, depth + 1);
      list.push_back({std::move(key), value(-1, field, depth + 1)});
      if (values_ > max_values) {
        lua_pop(L_, 2);
        break;
      }
    }
    return list;
  }

  Json table(int index, const std::string& name, int depth) {
    if (const auto* const path = of_library(index)) return {{"lib", *path}};
    if (library_kind(L_, index) != LibraryKind::none) return lost(name, "a table of the library");
    const auto [number, fresh] = number_of(index);
    if (fresh) objects_[number] = is_module(index) ? module(index, name, depth) : plain_table(index, name, depth);
    return {{"o", number}};
  }

  Json plain_table(int index, const std::string& name, int depth) {
    Json object = {{"table", pairs(index, name, depth)}};
    if (lua_getmetatable(L_, index)) {
      object["meta"] = value(-1, name, depth + 1);
      lua_pop(L_, 1);
    }
    return object;
  }

  bool is_module(int index) {
    push_modules_function(L_, "is");
    lua_pushvalue(L_, index);
    lua_call(L_, 1, 1);
    const bool is = lua_toboolean(L_, -1) != 0;
    lua_pop(L_, 1);
    return is;
  }

  Json module(int index, const std::string& name, int depth) {
    const int top = lua_gettop(L_);
    push_modules_function(L_, "frozen");
    lua_pushvalue(L_, index);
    lua_call(L_, 1, 4);  // class, name, order, kinds
    Json object;
    if (lua_isnil(L_, top + 1)) {
      object = {{"lost", lost(name, "a TorchScript module")["lost"]}};
    } else {
      object = {{"module", lua_tostring(L_, top + 1)}, {"name", lua_tostring(L_, top + 2)}};
      object["order"] = pairs(top + 3, name, depth);
      object["kinds"] = pairs(top + 4, name, depth);
      object["fields"] = pairs(index, name, depth);
    }
    lua_settop(L_, top);
    return object;
  }

  Json function(int index, const std::string& name, int depth) {
    if (const auto* const path = of_library(index)) return {{"lib", *path}};
    if (push_made(L_, index)) return made(index, name, depth);
    if (lua_iscfunction(L_, index)) return lost(name, "a function of C");
    const int64_t id = function_id(L_, index);
    const std::string_view text = chunk_text(L_, index);
    if (id == 0 || text.empty()) return lost(name, "a function whose text is not known");
    const auto [number, fresh] = number_of(index);
    if (!fresh) return {{"o", number}};
    lua_Debug info;
    lua_pushvalue(L_, index);
    lua_getinfo(L_, ">S", &info);
    Json object = {{"function", id & function_number},
                   {"chunk", chunk_number(id & ~function_number, info.source, text)},
                   {"line", info.linedefined}};
    object["upvalues"] = upvalues(index, depth);
    objects_[number] = std::move(object);
    return {{"o", number}};
  }

  /// The call of the library that made the function at `index`; it is on top of the stack, which is popped.
  Json made(int index, const std::string& name, int depth) {
    const int call = lua_gettop(L_);
    const auto [number, fresh] = number_of(index);
    if (fresh) {
      lua_rawgeti(L_, call, 1);
      Json object = {{"made", lua_tostring(L_, -1)}, {"arguments", Json::array()}};
      lua_getfield(L_, call, "n");
      const lua_Integer count = lua_tointeger(L_, -1);
      for (lua_Integer i = 1; i <= count; ++i) {
        lua_rawgeti(L_, call, i + 1);
        object["arguments"].push_back(value(-1, name, depth + 1));
        lua_pop(L_, 1);
      }
      objects_[number] = std::move(object);
    }
    lua_settop(L_, call - 1);
    return {{"o", number}};
  }

  size_t chunk_number(int64_t id, const char* name, std::string_view text) {
    const auto [found, fresh] = chunk_numbers_.emplace(id, chunks_.size());
    if (fresh)
      chunks_.push_back(
          {{"name", name}, {"hash", files::checksum_text(files::checksum(text))}, {"text", std::string(text)}});
    return found->second;
  }

  Json upvalues(int index, int depth) {
    Json list = Json::array();
    for (int i = 1; const char* const name = lua_getupvalue(L_, index, i); ++i) {
      const std::string_view given(name);
      if (given == "_ENV")
        globals(index, depth);
      else if (!given.starts_with("__triage_"))
        list.push_back({std::string(given), cell(lua_upvalueid(L_, index, i), name, depth)});
      lua_pop(L_, 1);
    }
    return list;
  }

  /// Of the variable whose value is on top of the stack: functions may share it.
  size_t cell(const void* id, const char* name, int depth) {
    const auto [found, fresh] = cell_numbers_.emplace(id, cells_.size());
    const size_t number = found->second;
    if (!fresh) return number;
    cells_.push_back(nullptr);
    Json content = value(lua_gettop(L_), name, depth + 1);
    cells_[number] = std::move(content);
    return number;
  }

  /// Globals that the function at `index` names; all where that is not known. Its environment is on top of the stack.
  void globals(int index, int depth) {
    const int environment = lua_gettop(L_);
    if (!lua_istable(L_, environment) || library_kind(L_, environment) != LibraryKind::environment) {
      missing_.push_back("an environment that the script made itself is not in it");
      return;
    }
    const auto named = globals_of(L_, index);
    if (named && !named->count("_ENV")) {
      for (const std::string& name : *named) {
        lua_pushlstring(L_, name.data(), name.size());
        lua_rawget(L_, environment);
        global(name, depth);
      }
      return;
    }
    std::vector<std::string> names;
    for (lua_pushnil(L_); lua_next(L_, environment); lua_pop(L_, 1))
      if (lua_type(L_, -2) == LUA_TSTRING) names.emplace_back(lua_tostring(L_, -2));
    for (const std::string& name : names) {
      lua_pushlstring(L_, name.data(), name.size());
      lua_rawget(L_, environment);
      global(name, depth);
    }
  }

  /// The value on top of the stack; pops it. What the library has under this name is there anyway.
  void global(const std::string& name, int depth) {
    const int top = lua_gettop(L_);
    const auto* const path = lua_topointer(L_, top) ? of_library(top) : nullptr;
    const bool there = lua_isnil(L_, top) || name == "_G" || (path && path->size() == 1 && path->front() == name) ||
                       (lua_iscfunction(L_, top) && !path);  // `policy`, host functions
    if (!there && global_names_.insert(name).second) {
      Json content = value(top, name, depth + 1);
      globals_.push_back({name, std::move(content)});
    }
    lua_settop(L_, top - 1);
  }

  Json guarded_tensor(int index, const std::string& name, int depth) {
    push_data(L_, index);
    push_flags(L_, index);
    Json parts = {value(-2, name, depth + 1), value(-1, name, depth + 1)};
    lua_pop(L_, 2);
    return {{"guarded", std::move(parts)}};
  }

  Json userdata(int index, const std::string& name, bool masked, int depth) {
    if (const auto* const path = of_library(index)) return {{"lib", *path}};
    if (const at::Tensor* const tensor = test_tensor(L_, index)) {
      try {
        return {{"t", options_.tensors.add(*tensor, masked)}};
      } catch (const files::Malformed& error) {
        return lost(name, error.what());
      }
    }
    if (is_guarded(L_, index)) return guarded_tensor(index, name, depth);
    const int behind = options_.function_behind ? options_.function_behind(L_, index) : LUA_NOREF;
    if (behind == LUA_NOREF) return lost(name, describe(L_, index));
    lua_rawgeti(L_, LUA_REGISTRYINDEX, behind);
    Json content = value(-1, name, depth + 1);
    lua_pop(L_, 1);
    return content;
  }

  lua_State* L_;
  const SnapshotOptions& options_;
  const LibraryNames library_;
  int values_ = 0;
  bool left_out_ = false;  // a value that is masked
  std::unordered_map<const void*, size_t> numbers_, cell_numbers_;
  std::unordered_map<int64_t, size_t> chunk_numbers_;
  std::set<std::string> global_names_;
  Json objects_ = Json::array(), cells_ = Json::array(), chunks_ = Json::array(), globals_ = Json::array(),
       missing_ = Json::array();
};

}  // namespace

Json snapshot(lua_State* L, int first, int last, const SnapshotOptions& options) {
  const int top = lua_gettop(L);
  SnapshotWriter writer(L, options);
  Json roots = Json::array();
  for (int i = first; i <= last; ++i) {
    const auto number = static_cast<size_t>(i - first);
    roots.push_back(writer.value(
        i, number < options.names.size() ? options.names[number] : fmt::format("value {}", number + 1), 0));
  }
  lua_settop(L, top);
  return writer.take(std::move(roots));
}

}  // namespace triage::lua
