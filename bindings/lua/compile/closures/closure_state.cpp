#include "bindings/lua/compile/closures/closure_state.h"

#include "bindings/lua/compile/compiled_function.h"
#include "bindings/lua/compile/escape_hatches.h"
#include "bindings/lua/flags/flags_library.h"
#include "bindings/lua/semantics/allowed_writes.h"
#include "bindings/lua/semantics/chunk.h"
#include "bindings/lua/semantics/libraries.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/state/table_fields.h"
#include "bindings/lua/state/userdata.h"
#include "bindings/lua/tensors/torch.h"
#include "bindings/lua/values/guarded.h"
#include "bindings/lua/values/tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace triage::lua {
namespace {

// Its address is the registry key of a table: what any function may read, as bytes -> its number. It has more than one
// where a script changes its library.
const char kGlobalsFingerprint = 0;

constexpr int max_depth = 180;
constexpr int max_values = 20'000;
constexpr size_t max_bytes = 1 << 20;                 // of texts among them
constexpr lua_Integer max_globals_fingerprints = 64;  // kept
// What our library's Lua part finds by name when it is called.
constexpr const char* names_of_library[] = {
    "assert",   "error",  "getmetatable", "ipairs", "math",   "next",   "os",    "pairs",    "pcall",    "print",
    "rawequal", "rawget", "rawlen",       "rawset", "select", "string", "table", "tonumber", "tostring", "type",
    "utf8",     "xpcall", "setmetatable", "torch",  "err",    "flags",  "nn",    "triage"};

class ClosureReader {
 public:
  ClosureReader(lua_State* L, int weak_references, Variables& variables, StateParts& parts)
      : L_(L), weak_references_(weak_references), variables_(variables), parts_(parts) {
    reserve(L, 4 * max_depth, "closure state");
  }

  void value(int index, int depth) {
    const size_t begin = text_.size();
    bytes_of(index, depth);
    if (wanted_ && !place_ && !in_key_ && text_.size() > *wanted_ && begin <= *wanted_)
      place_ = StatePlace{name(), begin};
  }

  /// The value that holds this byte of what follows is to be named.
  void find_place(size_t at) { wanted_ = at; }
  const std::optional<StatePlace>& place() const noexcept { return place_; }

  /// What any function may read, as one number where it is as it was when the state began: what the library finds by
  /// name, and the metatables of types (methods of a string come from one table).
  void globals_fingerprint() {
    push_script_globals(L_);
    const int environment = lua_gettop(L_);
    for (const char* const name : names_of_library) {
      push_own_field(L_, environment, name);
      value(-1, 1);
      lua_pop(L_, 1);
    }
    metatable(environment, 1);
    lua_pop(L_, 1);
    lua_pushnil(L_);
    lua_pushboolean(L_, true);
    lua_pushinteger(L_, 0);
    lua_pushliteral(L_, "");
    for (int i = 0; i < 4; ++i) {
      metatable(lua_gettop(L_), 1);
      lua_pop(L_, 1);
    }
    shorten();
    bytes('w', hidden_writes(L_));
    end_part(0, "a library, or the metatable of a type,");
  }

  /// Whatever the function, or what it has at hand, may read by a name that its text does not show.
  void rest_of_globals() {
    if (!any_global_) return;
    push_script_globals(L_);
    all_globals(lua_gettop(L_), 1);
    lua_pop(L_, 1);
    end_part(0, "a global that it may read");
  }

  std::string take() { return std::move(text_); }
  bool too_much() const noexcept { return too_much_; }

 private:
  void bytes_of(int index, int depth) {
    index = lua_absindex(L_, index);
    if (++values_ > max_values || depth > max_depth) return opaque();
    constexpr int interval = 1000;
    if (values_ % interval == 0) charge(L_, 0);
    switch (lua_type(L_, index)) {
      case LUA_TNIL:
        text_ += 'n';
        break;
      case LUA_TBOOLEAN:
        text_ += lua_toboolean(L_, index) ? 'T' : 'F';
        break;
      case LUA_TNUMBER:
        number(index);
        break;
      case LUA_TSTRING:
        string(index);
        break;
      case LUA_TTABLE:
        table(index, depth);
        break;
      case LUA_TFUNCTION:
        function(index, depth);
        break;
      default:
        userdata(index, depth);
    }
  }

  /// Another key is a change of the table that has it.
  void key(int index, int depth) {
    const bool before = std::exchange(in_key_, true);
    value(index, depth);
    in_key_ = before;
  }

  /// What leads to the value that is read, where that is to be said.
  struct PathStep {
    const char* kind;  // "upvalue", "global"; null: a field
    std::string name;
  };
  /// While alive, the values that are read are behind a step.
  class Stepping {
   public:
    Stepping(ClosureReader& reader, const char* kind, std::string_view name)
        : reader_(reader), active_(reader.wanted_) {
      if (active_) reader_.steps_.push_back({kind, std::string(name)});
    }
    ~Stepping() {
      if (active_) reader_.steps_.pop_back();
    }
    Stepping(const Stepping&) = delete;
    Stepping& operator=(const Stepping&) = delete;

   private:
    ClosureReader& reader_;
    const bool active_;
  };

  /// "upvalue 'n' of upvalue 'apply'", "global 'cfg.k'".
  std::string name() const {
    std::string all, path;
    for (size_t i = steps_.size(); i-- > 0;) {
      const PathStep& step = steps_[i];
      path.insert(0, step.name);
      if (!step.kind) continue;
      all += fmt::format("{}{} '{}'", all.empty() ? "" : " of ", step.kind, path);
      path.clear();
    }
    return all;
  }

  /// As it is written behind the table: ".k", "[1]".
  std::string field_text(int index) {
    constexpr size_t longest = 40;
    if (lua_isinteger(L_, index)) return fmt::format("[{}]", lua_tointeger(L_, index));
    if (lua_type(L_, index) != LUA_TSTRING) return "[...]";
    size_t length = 0;
    const char* const text = lua_tolstring(L_, index, &length);
    const bool plain = length > 0 && length <= longest && std::all_of(text, text + length, [](unsigned char c) {
                         return std::isalnum(c) != 0 || c == '_';
                       });
    return plain ? fmt::format(".{}", std::string_view(text, length)) : "[...]";
  }

  std::unordered_map<const void*, size_t>& seen() { return seen_[allowed_ > 0]; }

  template <typename T>
  void bytes(char tag, const T& item) {
    text_ += tag;
    text_.append(reinterpret_cast<const char*>(&item), sizeof(item));
  }

  /// Too much to read: equal only as long as nothing at all was written.
  void opaque() {
    bytes('E', context(L_).epoch);
    too_much_ = true;
  }

  void number(int index) {
    if (lua_isinteger(L_, index))
      bytes('i', lua_tointeger(L_, index));
    else
      bytes('d', lua_tonumber(L_, index));
  }

  void string(int index) {
    size_t length = 0;
    const char* data = lua_tolstring(L_, index, &length);
    if (text_.size() + length > max_bytes) return opaque();
    bytes('s', length);
    text_.append(data, length);
  }

  /// True the first time; later a reference to where it came first.
  bool first_visit(int index) {
    const void* address = lua_topointer(L_, index);
    auto [found, fresh] = seen().emplace(address, seen().size());
    if (fresh) weak_reference(index);
    bytes(fresh ? 'o' : 'r', fresh ? reinterpret_cast<size_t>(address) : found->second);
    return fresh;
  }

  void weak_reference(int index) {
    lua_pushvalue(L_, index);
    lua_pushboolean(L_, true);
    lua_rawset(L_, weak_references_);
  }

  void table(int index, int depth) {
    const LibraryKind kind = library_kind(L_, index);
    if (kind == LibraryKind::environment || leads_anywhere(L_, index)) any_global_ = true;
    if (!first_visit(index) || kind != LibraryKind::none || (allowed_ && is_allowed_write(L_, index))) return;
    contents(index, depth);
    metatable(index, depth);
    text_ += '}';
  }

  void metatable(int index, int depth) {
    if (!lua_getmetatable(L_, index)) return;
    value(lua_gettop(L_), depth + 1);
    lua_pop(L_, 1);
  }

  void contents(int index, int depth) {
    lua_pushnil(L_);
    while (lua_next(L_, index)) {
      key(-2, depth + 1);
      {
        const Stepping stepping(*this, nullptr, wanted_ ? field_text(-2) : std::string());
        value(-1, depth + 1);
      }
      lua_pop(L_, 1);
      if (values_ > max_values) return lua_pop(L_, 1);
    }
  }

  void all_globals(int environment, int depth) {
    if (!wholly_read_[allowed_ > 0].insert(lua_topointer(L_, environment)).second) return;
    bytes('G', lua_topointer(L_, environment));
    lua_pushnil(L_);
    while (lua_next(L_, environment)) {
      if (!allowed_ || !is_allowed_write(L_, -2)) {
        value(-2, depth + 1);
        value(-1, depth + 1);
      }
      lua_pop(L_, 1);
    }
    metatable(environment, depth);
  }

  void named_globals(int environment, int depth, const std::set<std::string>& names) {
    const void* const address = lua_topointer(L_, environment);
    if (wholly_read_[allowed_ > 0].count(address)) return;
    const auto [place, fresh] = names_read_[allowed_ > 0].try_emplace(address);
    std::set<std::string>& known = place->second;  // which stays where it is while others are added
    if (fresh) {
      weak_reference(environment);
      bytes('N', address);
      metatable(environment, depth);
    }
    for (const std::string& name : names) {
      if (!known.insert(name).second) continue;
      if (depth == 0) root_ = name;
      lua_pushlstring(L_, name.data(), name.size());
      if (!allowed_ || !is_allowed_write(L_, -1)) {
        key(-1, depth + 1);
        lua_rawget(L_, environment);
        const Stepping stepping(*this, "global", name);
        value(-1, depth + 1);
      }
      lua_pop(L_, 1);
      end_part(depth, "global", name);
    }
  }

  /// The bytes so far become their number among all that were there in their place, if those were few.
  void shorten() {
    push_registry_table(L_, &kGlobalsFingerprint);
    const int known = lua_gettop(L_);
    lua_pushlstring(L_, text_.data(), text_.size());
    lua_pushvalue(L_, -1);
    lua_Integer number = 0;
    if (lua_rawget(L_, known) == LUA_TNUMBER) {
      number = lua_tointeger(L_, -1);
    } else {
      for (lua_pushnil(L_); lua_next(L_, known); lua_pop(L_, 1)) ++number;
      lua_pop(L_, 1);
      lua_pushinteger(L_, number);
      if (number < max_globals_fingerprints) lua_rawset(L_, known);
    }
    lua_settop(L_, known - 1);
    if (number == max_globals_fingerprints) return;
    text_.clear();
    bytes('S', number);
  }

  void function(int index, int depth) {
    if (leads_anywhere(L_, index)) any_global_ = true;
    const bool allowed = is_allowed_function(L_, index);
    allowed_ += allowed;
    if (first_visit(index) && !is_library_function(L_, index))
      lua_iscfunction(L_, index) ? called_functions(index, depth) : variables_of(index, depth);
    allowed_ -= allowed;
  }

  void variables_of(int index, int depth) {
    for (int i = 1; const char* name = lua_getupvalue(L_, index, i); ++i) {
      if (std::string_view(name) == "_ENV" && lua_istable(L_, -1)) {
        globals_of_function(index, lua_gettop(L_), depth);
      } else if (!allowed_ || !is_allowed_upvalue(L_, index, i)) {
        if (depth == 0) root_ = name;
        const Stepping stepping(*this, "upvalue", name);
        value(-1, depth + 1);
        end_part(depth, "upvalue", name);
      }
      lua_pop(L_, 1);
    }
    text_ += ')';
  }

  /// What a function in C may call: the library wraps functions of scripts in such.
  void called_functions(int index, int depth) {
    if (is_assumed_constant(L_, index)) return;
    for (int i = 1; lua_getupvalue(L_, index, i); ++i) {
      if (lua_isfunction(L_, -1) || lua_isthread(L_, -1)) value(-1, depth + 1);
      lua_pop(L_, 1);
    }
    text_ += ')';
  }

  void globals_of_function(int index, int environment, int depth) {
    const auto names = globals_of(L_, index);
    if (names && !names->count("_ENV")) return named_globals(environment, depth, *names);
    lua_Debug info;
    lua_pushvalue(L_, index);
    lua_getinfo(L_, ">S", &info);
    if (!names && std::string_view(info.source).substr(0, 9) == "=[triage ") return;  // see names_of_library
    all_globals(environment, depth);
    end_part(depth, "a global that it may read");
  }

  /// Only of the function itself: most of what is read lies deeper.
  void end_part(int depth, std::string_view what, std::string_view name = {}) {
    if (depth != 0) return;
    parts_.emplace_back(name.empty() ? std::string(what) : fmt::format("{} '{}'", what, name), text_.size());
  }

  void userdata(int index, int depth) {
    const at::Tensor* found = test_tensor(L_, index);
    if (found && !found->key_set().has(c10::DispatchKey::NestedTensor))  // it has no sizes, and no graph takes it
      return variable(lua_touserdata(L_, index), *found);
    if (is_guarded(L_, index)) return guarded_tensor(index, depth);
    bytes('u', lua_topointer(L_, index));
    weak_reference(index);
    if (lua_isthread(L_, index)) any_global_ = true;
    if (const int function = compiled_function_of(L_, index); function != LUA_NOREF) {
      lua_rawgeti(L_, LUA_REGISTRYINDEX, function);
      value(lua_gettop(L_), depth + 1);
      lua_pop(L_, 1);
    }
    if (const auto config = test_error_config(L_, index)) configuration(*config);
  }

  /// By its place among them, as a tensor is: another one in its place is no other function.
  void guarded_tensor(int index, int depth) {
    const auto [found, fresh] = seen().emplace(lua_touserdata(L_, index), seen().size());
    bytes('g', found->second);
    if (!fresh) return;
    weak_reference(index);
    push_data(L_, index);
    push_flags(L_, index);
    for (const int part : {-2, -1}) value(part, depth + 1);
    lua_pop(L_, 2);
  }

  void configuration(const ErrorConfig& config) {
    bytes('c', config.flag_dtype);
    bytes('c', config.num_slots);
    bytes('c', config.policy());
    bytes('c', to_int(config.default_severity));
    bytes('c', config.strict_validation);
    bytes('c', config.use_transposed_layout);
    bytes('c', config.transpose_threshold);
  }

  /// By its place among them, and all that a script can read of it without a graph break.
  void variable(const void* userdata, const at::Tensor& tensor) {
    const auto [known, fresh] = variables_.numbers.emplace(userdata, variables_.tensors.size());
    bytes('t', known->second);
    if (!fresh) return;
    variables_.tensors.push_back(tensor);
    variables_.names.push_back(root_);
    bytes(
        '=',
        first_of_.emplace(tensor.unsafeGetTensorImpl(), known->second).first->second);  // it may have several userdata
    bytes('k', tensor.key_set().raw_repr());
    bytes('y', tensor.scalar_type());
    bytes('v', tensor.device().index());
    bytes('g', tensor.requires_grad());
    bytes('l', tensor.is_leaf());
    bytes('#', tensor.dim());
    for (int64_t size : tensor.sizes()) bytes('x', size);
  }

  lua_State* L_;
  int weak_references_;
  Variables& variables_;
  StateParts& parts_;
  std::optional<size_t> wanted_;
  std::optional<StatePlace> place_;
  bool in_key_ = false;
  std::vector<PathStep> steps_;
  int values_ = 0;
  bool too_much_ = false;
  std::unordered_map<const at::TensorImpl*, size_t> first_of_;  // the number of the first variable that is this tensor
  std::string root_;                                            // the variable of the function that is read
  bool any_global_ = false;  // it may be read through something that a function has at hand
  std::string text_;
  // What functions under triage.allow_in_graph wrote is left out where they lead to it, and only there: with how deep
  // in such a function the reader is, and apart, what it has come across in there.
  int allowed_ = 0;
  std::unordered_map<const void*, size_t> seen_[2];
  std::unordered_set<const void*> wholly_read_[2];  // tables of globals
  std::unordered_map<const void*, std::set<std::string>> names_read_[2];
};

}  // namespace

void mark_libraries(lua_State* L) {
  mark_libraries(L, -1, /*environment=*/true);
  push_core(L);
  mark_libraries(L, -1);
  lua_pop(L, 1);
  mark_library_functions(L, -1);
  lua_pop(L, 1);
}

std::string closure_state(lua_State* L, int index, int weak_references, Variables& variables, StateParts& parts,
                          bool& too_much) {
  index = lua_absindex(L, index);
  int top = lua_gettop(L);
  ClosureReader reader(L, lua_absindex(L, weak_references), variables, parts);
  reader.globals_fingerprint();
  reader.value(index, 0);
  reader.rest_of_globals();
  lua_settop(L, top);
  too_much = reader.too_much();
  return reader.take();
}

std::optional<StatePlace> place_in_state(lua_State* L, int index, std::string_view state, size_t at) {
  index = lua_absindex(L, index);
  const int top = lua_gettop(L);
  Variables variables;
  StateParts parts;
  lua_newtable(L);
  ClosureReader reader(L, lua_gettop(L), variables, parts);
  reader.globals_fingerprint();
  reader.find_place(at);
  reader.value(index, 0);
  reader.rest_of_globals();
  lua_settop(L, top);
  if (reader.take() != state || !reader.place() || reader.place()->name.empty()) return std::nullopt;
  return reader.place();
}

}  // namespace triage::lua
