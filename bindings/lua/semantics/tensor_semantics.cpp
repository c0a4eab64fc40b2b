#include "bindings/lua/semantics/tensor_semantics.h"

#include "bindings/lua/numbers/arithmetic.h"
#include "bindings/lua/state/effects.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/tensors/torch.h"
#include "bindings/lua/values/guarded.h"
#include "bindings/lua/values/number.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/recording/held_params.h"
#include "runtime/capture/recording/recorder.h"

#include <sstream>

namespace triage::lua {
namespace {

void push_method(lua_State* L, const char* name) {
  push_methods(L);
  lua_getfield(L, -1, name);
  lua_remove(L, -2);
}

std::string several_elements(const at::Tensor& tensor) {
  const bool is_mask = tensor.scalar_type() == at::kBool;
  std::ostringstream text;
  text << "a " << (is_mask ? "bool tensor" : "tensor of numbers") << " of shape " << tensor.sizes()
       << " as a condition: it has " << tensor.numel() << " elements, and a condition needs one truth value. ";
  if (is_mask)
    text << "To choose per sample use IF(mask, ...); to reduce use mask:any() or mask:all(); to combine masks use "
            "& | ~ instead of and, or, not";
  else
    text << "To reduce use x:any() or x:all(), which are true where an element is not 0; to ask whether there is a "
            "value write x ~= nil";
  return text.str();
}

/// That there is one element may be so for this batch only.
int check_one_element(lua_State* L) {
  const at::Tensor& tensor = check_tensor(L, 1);
  auto* const recorder = capture::Recorder::current();
  for (int64_t dim = 0; recorder && dim < tensor.dim(); dim++) recorder->sizes().read_size(tensor, dim);
  return 0;
}

int next_row(lua_State* L) {
  const at::Tensor& tensor = check_tensor(L, 1);
  const lua_Integer row = luaL_checkinteger(L, 2) + 1;
  if (row >= tensor.size(0)) return 0;
  lua_pushinteger(L, row);
  lua_pushinteger(L, row);
  lua_gettable(L, 1);
  return 2;
}

int start_rows(lua_State* L) {
  const at::Tensor& tensor = check_tensor(L, 1);
  if (tensor.dim() == 0)
    throw std::invalid_argument("ipairs of a 0-dim tensor: it has no rows; read its value with x:item()");
  if (auto* recorder = capture::Recorder::current()) recorder->sizes().read_size(tensor, 0);
  lua_pushcfunction(L, guarded<next_row>);
  lua_pushvalue(L, 1);
  lua_pushinteger(L, -1);
  return 3;
}

int specialized(lua_State* L) {
  specialize_number(L, 1);
  return 1;
}

int compare_symbols(lua_State* L) {
  const std::string method = lua_tostring(L, 3);
  lua_settop(L, 2);
  compare_numbers(L, method.c_str());
  return 1;
}

int read_truth(lua_State* L) {
  const at::Tensor& tensor = check_tensor(L, 1);
  if (!capture::hold_param(tensor))
    capture::graph_break(capture::Break::reads_value, "a condition reads the value of a tensor",
                         "Use IF(cond, ...):ELSE(...) or torch.where, which keep the choice in the graph.");
  lua_pushboolean(L, tensor.item().toBool());
  return 1;
}

}  // namespace

bool is_tensor(lua_State* L, int index) {
  return lua_type(L, index) == LUA_TUSERDATA &&
         (test_tensor(L, index) || test_symbolic(L, index) || is_guarded(L, index));
}

bool has_flags(lua_State* L, int index) { return is_guarded(L, index); }

bool is_number_tensor(lua_State* L, int index) {
  const at::Tensor* const tensor =
      lua_type(L, index) == LUA_TUSERDATA && !test_symbolic(L, index) ? find_data(L, index) : nullptr;
  return tensor && tensor->scalar_type() != at::kBool;
}

bool has_one_element(lua_State* L, int index) { return find_data(L, index)->numel() == 1; }

void replace_by_mask(lua_State* L, int index, const char* where) {
  index = lua_absindex(L, index);
  const at::Tensor& data = *find_data(L, index);
  if (data.numel() != 1) {
    lua_pushfstring(L, "%s%s", where, several_elements(data).c_str());
    lua_error(L);
  }
  lua_pushcfunction(L, guarded<check_one_element>);
  push_data(L, index);
  lua_call(L, 1, 0);
  push_library_function(L, "truth");
  push_data(L, index);
  lua_call(L, 1, 1);
  lua_replace(L, index);
}

bool is_mask(lua_State* L, int index) {
  const at::Tensor* const tensor = find_data(L, index);
  return tensor && tensor->scalar_type() == at::kBool;
}

void push_library_function(lua_State* L, const char* name) {
  push_core(L);
  lua_getfield(L, -1, "natural");
  lua_getfield(L, -1, name);
  lua_replace(L, -3);
  lua_pop(L, 1);
}

const char* symbolic_kind(lua_State* L, int index) {
  const at::Tensor* symbolic = lua_type(L, index) == LUA_TUSERDATA ? test_symbolic(L, index) : nullptr;
  if (!symbolic) return nullptr;
  return symbolic->scalar_type() == at::kBool ? "boolean" : is_whole_number(*symbolic) ? "integer" : "float";
}

void specialize(lua_State* L, int index) {
  if (!symbolic_kind(L, index)) return;
  index = lua_absindex(L, index);
  lua_pushcfunction(L, guarded<specialized>);
  lua_pushvalue(L, index);
  lua_call(L, 1, 1);
  lua_replace(L, index);
}

void compare_tensors(lua_State* L, const char* method) {
  if (!test_tensor(L, 1) && !test_tensor(L, 2) && !is_guarded(L, 1) && !is_guarded(L, 2)) {
    lua_pushcfunction(L, guarded<compare_symbols>);
    lua_pushvalue(L, 1);
    lua_pushvalue(L, 2);
    lua_pushstring(L, method);
    lua_call(L, 3, 1);
    return;
  }
  push_method(L, method);
  lua_pushvalue(L, 1);
  lua_pushvalue(L, 2);
  lua_call(L, 2, 1);
}

void push_truth(lua_State* L, int index, const char* where) {
  if (const at::Tensor* symbolic = test_symbolic(L, index)) {
    const bool condition = symbolic->scalar_type() == at::kBool;
    lua_pushvalue(L, index);
    if (condition) specialize(L, -1);
    return;
  }
  const at::Tensor* const data = find_data(L, index);
  if (!data) {
    lua_pushfstring(L, "%sthe data of this guarded tensor was freed", where);
    lua_error(L);
  }
  index = lua_absindex(L, index);
  if (data->numel() != 1) {
    lua_pushfstring(L, "%s%s", where, several_elements(*data).c_str());
    lua_error(L);
  }
  lua_pushcfunction(L, guarded<read_truth>);
  push_data(L, index);
  lua_call(L, 1, 1);
  const bool truth = lua_toboolean(L, -1);
  lua_pop(L, 1);
  truth ? lua_pushvalue(L, index) : lua_pushboolean(L, false);
}

int iterate_rows(lua_State* L) { return guarded<start_rows>(L); }

void replace_by_item(lua_State* L, int index) {
  index = lua_absindex(L, index);
  if (symbolic_kind(L, index)) return specialize(L, index);
  lua_getfield(L, index, "item");
  lua_pushvalue(L, index);
  lua_call(L, 1, 1);
  lua_replace(L, index);
}

}  // namespace triage::lua
