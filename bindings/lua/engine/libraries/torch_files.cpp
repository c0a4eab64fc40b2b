#include "bindings/lua/engine/libraries/torch_files.h"

#include "bindings/lua/engine/libraries/flag_files.h"
#include "bindings/lua/state/effects.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/tensors/calls/convert.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/graph_break.h"
#include "runtime/capture/replay/trace_replayer.h"
#include "runtime/operators/logical_bytes.h"

#include <triage/files.h>

#include <string>

namespace triage::lua {
namespace {

constexpr int max_depth = 32;

/// `path` names the value in messages: "the value", "the value.encoder[2]".
c10::IValue read_value(lua_State* L, int index, const std::string& path, int depth);

c10::IValue read_list(lua_State* L, int index, lua_Integer count, const std::string& path, int depth) {
  c10::List<c10::IValue> list(c10::AnyType::get());
  for (lua_Integer i = 1; i <= count; ++i) {
    lua_rawgeti(L, index, i);
    list.push_back(read_value(L, -1, path + "[" + std::to_string(i) + "]", depth));
    lua_pop(L, 1);
  }
  return list;
}

c10::IValue read_dict(lua_State* L, int index, const c10::TypePtr& keys, const std::string& path, int depth) {
  c10::Dict<c10::IValue, c10::IValue> dict(keys, c10::AnyType::get());
  for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
    if (lua_isinteger(L, -2)) {
      const int64_t key = lua_tointeger(L, -2);
      dict.insert(key, read_value(L, -1, path + "[" + std::to_string(key) + "]", depth));
    } else {
      const std::string key = lua_tostring(L, -2);
      dict.insert(key, read_value(L, -1, path + "." + key, depth));
    }
  }
  return dict;
}

c10::IValue read_table(lua_State* L, int index, const std::string& path, int depth) {
  if (depth > max_depth)
    throw InputError("torch.save: " + path.substr(0, 80) + "... is nested more than " + std::to_string(max_depth) +
                     " tables deep; does a table hold itself?");
  reserve(L, 0, "tables");
  index = lua_absindex(L, index);
  const auto count = static_cast<lua_Integer>(lua_rawlen(L, index));
  lua_Integer keys = 0, texts = 0, integers = 0;
  for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
    ++keys;
    texts += lua_type(L, -2) == LUA_TSTRING;
    integers += lua_isinteger(L, -2);
  }
  if (keys == count) return read_list(L, index, count, path, depth);
  if (keys == texts) return read_dict(L, index, c10::StringType::get(), path, depth);
  if (keys == integers) return read_dict(L, index, c10::IntType::get(), path, depth);
  throw InputError("torch.save: " + path +
                   " has keys of several kinds; a table is saved as a list, {a, b}, or as a dict, "
                   "{name = a} or {[0] = a}");
}

c10::IValue read_value(lua_State* L, int index, const std::string& path, int depth) {
  if (const at::Tensor* tensor = test_tensor(L, index)) return *tensor;
  switch (lua_type(L, index)) {
    case LUA_TNUMBER:
      if (lua_isinteger(L, index)) return static_cast<int64_t>(lua_tointeger(L, index));
      return lua_tonumber(L, index);
    case LUA_TBOOLEAN:
      return lua_toboolean(L, index) != 0;
    case LUA_TSTRING:
      return std::string(lua_tostring(L, index), lua_rawlen(L, index));
    case LUA_TTABLE:
      return read_table(L, index, path, depth + 1);
    default:
      throw InputError("torch.save: expected a tensor, or tables of tensors, numbers, strings and booleans as " + path +
                       ", got " + describe(L, index));
  }
}

void push_any_tensor(lua_State* L, const at::Tensor& tensor) { push_tensor(L, tensor); }

/// A few bytes of a file may be strides of 0 for as many elements as it likes.
void push_own_tensor(lua_State* L, const at::Tensor& tensor) {
  const auto bytes = static_cast<size_t>(operators::logical_bytes(tensor.sizes(), tensor.scalar_type()));
  charge(L, 0, bytes);
  const bool is_own = tensor.is_contiguous() && tensor.storage().use_count() == 1 && tensor.storage().nbytes() == bytes;
  push_tensor(L, is_own ? tensor.detach() : tensor.detach().clone(at::MemoryFormat::Contiguous));
}

void push_value(lua_State* L, const c10::IValue& value, void (*push)(lua_State*, const at::Tensor&)) {
  reserve(L, 0, "tables");
  if (value.isTensor()) {
    push(L, value.toTensor());
  } else if (value.isGenericDict()) {
    lua_newtable(L);
    for (const auto& item : value.toGenericDict()) {
      push_value(L, item.key(), push);
      push_value(L, item.value(), push);
      lua_rawset(L, -3);
    }
  } else if (value.isTuple()) {
    lua_newtable(L);
    lua_Integer i = 0;
    for (const auto& item : value.toTupleRef().elements()) {
      push_value(L, item, push);
      lua_rawseti(L, -2, ++i);
    }
  } else if (value.isList()) {
    lua_newtable(L);
    lua_Integer i = 0;
    for (const c10::IValue& item : value.toListRef()) {
      push_value(L, item, push);
      lua_rawseti(L, -2, ++i);
    }
  } else {
    push_ivalue(L, value);
  }
}

/// torch.save(value, path)
int save(lua_State* L) {
  const char* path = text_argument(L, {2, "torch.save", "path"});
  refuse_in_selection(L, "`torch.save`");
  break_for_file("torch.save");
  on_behalf_of("torch.save", [&] {
    if (const at::Tensor* tensor = test_tensor(L, 1))
      save_tensor(path, *tensor);
    else
      save_file(path, read_value(L, 1, "the value", 0));
  });
  return 0;
}

/// torch.load(path)
int load(lua_State* L) {
  const char* path = text_argument(L, {1, "torch.load", "path"});
  break_for_file("torch.load");
  const auto loaded = [path] { return with_own_flags(path, load_file(path)); };
  push_value(L, on_behalf_of("torch.load", loaded), push_any_tensor);
  return 1;
}

}  // namespace

void break_for_file(const char* what) {
  capture::graph_break(capture::Break::output, std::string("`") + what + "` reaches a file",
                       "Save and load outside of compiled code.");
  capture::end_segment();
}

void push_constant(lua_State* L, const c10::IValue& value) { push_value(L, value, push_own_tensor); }

void add_torch_files(lua_State* L) {
  static const LimitedFunction functions[] = {{"save", guarded<save>, 2}, {"load", guarded<load>, 1}};
  lua_getglobal(L, "torch");
  set_limited(L, "torch.", functions);
  lua_pop(L, 1);
}

}  // namespace triage::lua
