#include "bindings/lua/values/tensor_list.h"

#include "bindings/lua/state/table_fields.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/tensors/variables.h"

namespace triage::lua {

std::vector<at::Tensor> check_tensor_list(lua_State* L, int index, const std::string& who) {
  if (!lua_istable(L, index)) throw InputError(who + ": expected a list of tensors, got " + describe(L, index));
  const auto count = static_cast<lua_Integer>(lua_rawlen(L, index));
  if (const std::string beside = beside_list(L, index); !beside.empty())
    throw InputError(who + ": expected a list of tensors, got one with " + beside);
  std::vector<at::Tensor> tensors;
  for (lua_Integer i = 1; i <= count; ++i) {
    lua_rawgeti(L, index, i);
    const at::Tensor* tensor = test_tensor(L, -1);
    if (!tensor) throw InputError(who + ": input " + std::to_string(i) + ": expected a tensor, got " + describe(L, -1));
    tensors.push_back(*tensor);
    lua_pop(L, 1);
  }
  return tensors;
}

void push_tensors(lua_State* L, at::ArrayRef<at::Tensor> tensors) {
  const int first = lua_gettop(L) + 1;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const size_t same = capture::number_among(tensors, tensors[i]);
    if (same < i)
      lua_pushvalue(L, first + static_cast<int>(same));
    else
      push_tensor(L, tensors[i]);
  }
}

}  // namespace triage::lua
