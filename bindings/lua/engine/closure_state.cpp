#include "bindings/lua/engine/closure_state.h"

#include "bindings/lua/engine/compile.h"
#include "bindings/lua/flags/flags_library.h"
#include "bindings/lua/loading/allowed_writes.h"
#include "bindings/lua/loading/libraries.h"
#include "bindings/lua/state.h"
#include "bindings/lua/tensors/torch.h"

#include <string_view>
#include <unordered_map>

namespace triage::lua {
namespace {

constexpr int max_depth = 60;
constexpr int max_values = 20'000;

class Reader {
 public:
  Reader(lua_State* L, int anchors, StateParts* parts, std::unordered_set<const void*>* tensors)
      : L_(L), anchors_(anchors), parts_(parts), tensors_(tensors) {
    luaL_checkstack(L, 3 * max_depth + 10, "closure state");
    bytes('w', hidden_writes(L));
  }

  void value(int index, int depth) {
    index = lua_absindex(L_, index);
    if (++values_ > max_values || depth > max_depth) return opaque();
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
        userdata(index);
    }
  }

  /// Values of these types have no metatable of their own: methods of a string come from one table.
  void metatables_of_types(int depth) {
    lua_pushnil(L_);
    lua_pushboolean(L_, true);
    lua_pushinteger(L_, 0);
    lua_pushliteral(L_, "");
    for (int i = 0; i < 4; ++i) {
      metatable(lua_gettop(L_), depth);
      lua_pop(L_, 1);
    }
  }

  std::string take() { return std::move(text_); }

 private:
  template <typename T>
  void bytes(char tag, const T& item) {
    text_ += tag;
    text_.append(reinterpret_cast<const char*>(&item), sizeof(item));
  }

  /// Too much to read: equal only as long as nothing at all was written.
  void opaque() { bytes('E', context(L_).epoch); }

  void number(int index) {
    if (lua_isinteger(L_, index))
      bytes('i', lua_tointeger(L_, index));
    else
      bytes('d', lua_tonumber(L_, index));
  }

  void string(int index) {
    size_t length = 0;
    const char* data = lua_tolstring(L_, index, &length);
    bytes('s', length);
    text_.append(data, length);
  }

  /// True the first time; later a reference to where it came first.
  bool first_visit(int index) {
    const void* address = lua_topointer(L_, index);
    auto [found, fresh] = seen_.emplace(address, seen_.size());
    if (fresh) anchor(index);
    bytes(fresh ? 'o' : 'r', fresh ? reinterpret_cast<size_t>(address) : found->second);
    return fresh;
  }

  void anchor(int index) {
    lua_pushvalue(L_, index);
    lua_pushboolean(L_, true);
    lua_rawset(L_, anchors_);
  }

  void table(int index, int depth) {
    const LibraryKind kind = library_kind(L_, index);
    if (kind == LibraryKind::environment) return globals(index, depth);
    if (!first_visit(index) || kind == LibraryKind::library || is_allowed_write(L_, index)) return;
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
      value(-2, depth + 1);
      value(-1, depth + 1);
      lua_pop(L_, 1);
    }
  }

  /// Without the libraries, which most of them are.
  void globals(int index, int depth) {
    if (!first_visit(index)) return;
    auto* const variables = std::exchange(tensors_, nullptr);
    lua_pushnil(L_);
    while (lua_next(L_, index)) {
      const bool is_library = lua_istable(L_, -1) && library_kind(L_, -1) != LibraryKind::none;
      if (!is_library && !is_allowed_write(L_, -2)) {
        value(-2, depth + 1);
        value(-1, depth + 1);
      }
      lua_pop(L_, 1);
    }
    metatable(index, depth);
    plain_libraries(depth);
    tensors_ = variables;
  }

  /// Scripts may put fields into the small libraries of Lua.
  void plain_libraries(int depth) {
    for (const char* name : {"math", "string", "table", "utf8", "os", "io"}) {
      if (lua_getglobal(L_, name) == LUA_TTABLE) contents(lua_gettop(L_), depth);
      lua_pop(L_, 1);
    }
  }

  void function(int index, int depth) {
    if (!first_visit(index) || lua_iscfunction(L_, index)) return;
    for (int i = 1; const char* name = lua_getupvalue(L_, index, i); ++i) {
      if (std::string_view(name) == "_ENV" && lua_istable(L_, -1))
        globals(lua_gettop(L_), depth);
      else if (!is_allowed_upvalue(L_, index, i))
        value(-1, depth + 1);
      lua_pop(L_, 1);
      if (depth == 0 && parts_) parts_->emplace_back(name, text_.size());
    }
    text_ += ')';
  }

  void userdata(int index) {
    if (const at::Tensor* found = test_tensor(L_, index)) {
      anchor(index);
      const void* const address = lua_touserdata(L_, index);
      if (tensors_) tensors_->insert(address);
      bytes('a', address);
      return tensor(*found);
    }
    bytes('u', lua_topointer(L_, index));
    anchor(index);
    if (const int function = compiled_function_of(L_, index); function != LUA_NOREF) {
      lua_rawgeti(L_, LUA_REGISTRYINDEX, function);
      value(lua_gettop(L_), 0);
      lua_pop(L_, 1);
    }
    if (const ErrorConfig* config = test_error_config(L_, index)) configuration(*config);
  }

  void configuration(const ErrorConfig& config) {
    bytes('c', config.flag_dtype);
    bytes('c', config.num_slots);
    bytes('c', config.policy());
    bytes('c', config.default_severity);
    bytes('c', config.strict_validation);
    bytes('c', config.use_transposed_layout);
    bytes('c', config.transpose_threshold);
  }

  /// By identity, and all that a script can read of it without a graph break. Its values are none of that: a graph holds
  /// the tensor itself, and reads it on every run.
  void tensor(const at::Tensor& tensor) {
    bytes('t', tensor.unsafeGetTensorImpl());
    bytes('k', tensor.key_set().raw_repr());
    bytes('y', tensor.scalar_type());
    bytes('g', tensor.requires_grad());
    bytes('#', tensor.dim());
    for (int64_t size : tensor.sizes()) bytes('x', size);
  }

  lua_State* L_;
  int anchors_;
  StateParts* parts_;
  std::unordered_set<const void*>* tensors_;
  int values_ = 0;
  std::string text_;
  std::unordered_map<const void*, size_t> seen_;
};

}  // namespace

void mark_libraries(lua_State* L) {
  mark_libraries(L, -1, /*environment=*/true);
  push_core(L);
  mark_libraries(L, -1);
  lua_pop(L, 2);
}

std::string closure_state(lua_State* L, int index, int anchors, StateParts* parts,
                          std::unordered_set<const void*>* tensors) {
  index = lua_absindex(L, index);
  int top = lua_gettop(L);
  Reader reader(L, lua_absindex(L, anchors), parts, tensors);
  reader.value(index, 0);
  reader.metatables_of_types(1);
  lua_settop(L, top);
  return reader.take();
}

}  // namespace triage::lua
