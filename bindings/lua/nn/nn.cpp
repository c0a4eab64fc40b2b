#include "bindings/lua/nn/nn.h"

#include "bindings/lua/semantics/intrinsics.h"
#include "bindings/lua/state/effects.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/tensors/torch.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/charge_copy.h"
#include "bindings/lua/values/constants.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/compiled.h"
#include "runtime/capture/recording/branch_guard.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/messages/logs/log.h"

#include <ATen/ATen.h>

#include <optional>
#include <stdexcept>
#include <string>

namespace triage::lua {
namespace {

/// core.note_write(table): what captured code may have read of it is about to change.
int note_write(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  note_table_write(L, 1);
  return 0;
}

/// core.set_requires_grad(tensor, boolean): of a module's own parameters, which policies may have too.
int set_requires_grad(lua_State* L) {
  const at::Tensor& tensor = check_tensor(L, 1);
  capture::BranchGuard::refuse_change(tensor, "`requires_grad_`");
  capture::ProtectInputs::refuse_change(tensor, "`requires_grad_` of a module");
  tensor.requires_grad_(lua_toboolean(L, 2) != 0);
  ++context(L).epoch;
  return 0;
}

/// core.drop_grad(tensor)
int drop_grad(lua_State* L) {
  refuse_in_selection(L, "`zero_grad` of a module");
  const at::Tensor& tensor = check_tensor(L, 1);
  capture::ProtectInputs::refuse_change(tensor, "`zero_grad` of a module");
  tensor.mutable_grad() = at::Tensor();
  return 0;
}

/// core.convert_data(tensor, dtype or nil, device or nil): the same tensor with other data, its gradient too. Integers
/// keep their dtype.
int convert_data(lua_State* L) {
  at::Tensor tensor = check_tensor(L, 1);
  capture::BranchGuard::refuse_change(tensor, "`to` of a module");
  capture::ProtectInputs::refuse_change(tensor, "`to` of a module");
  const auto dtype = test_dtype(L, 2);
  if (!lua_isnil(L, 2) && !(dtype && (at::isFloatingType(*dtype) || at::isComplexType(*dtype))))
    throw std::invalid_argument(
        "module:to: expected a floating point dtype such as torch.float64, or a device such as \"cpu\", got " +
        describe(L, 2));
  std::optional<c10::Device> device;
  if (lua_type(L, 3) == LUA_TSTRING)
    device = on_behalf_of("module:to", [L] { return parse_device(lua_tostring(L, 3)); });
  const auto converted = [&](const at::Tensor& from) {
    const bool is_number = from.is_floating_point() || from.is_complex();
    return from.detach().to(
        from.options().device(device.value_or(from.device())).dtype(dtype && is_number ? *dtype : from.scalar_type()));
  };
  charge_copy(L, tensor, dtype ? c10::elementSize(*dtype) : tensor.element_size());
  set_data(L, 1, converted(tensor));
  if (tensor.grad().defined()) {
    const bool required = tensor.grad().requires_grad();
    tensor.mutable_grad() = converted(tensor.grad()).requires_grad_(required);
  }
  ++context(L).epoch;
  return 0;
}

/// core.warn(text): in the log of the script's host.
int warn(lua_State* L) {
  messages::warn(luaL_checkstring(L, 1));
  return 0;
}

/// core.copy_data(to, from): values only, for load_state_dict.
int copy_data(lua_State* L) {
  capture::BranchGuard::refuse_change(check_tensor(L, 1), "`load_state_dict`");
  capture::ProtectInputs::refuse_change(check_tensor(L, 1), "`load_state_dict`");
  at::NoGradGuard no_grad;
  at::Tensor(check_tensor(L, 1)).copy_(check_tensor(L, 2));
  return 0;
}

}  // namespace

void open_nn(lua_State* L) {
  push_core(L);
  static const luaL_Reg functions[] = {{"note_write", guarded<note_write>},
                                       {"set_requires_grad", guarded<set_requires_grad>},
                                       {"drop_grad", guarded<drop_grad>},
                                       {"convert_data", guarded<convert_data>},
                                       {"copy_data", guarded<copy_data>},
                                       {"warn", guarded<warn>},
                                       {nullptr, nullptr}};
  luaL_setfuncs(L, functions, 0);
  add_parameters(L);
  if (!context(L).sandboxed) {
    add_torch_script(L);
    push_optim(L);
    lua_setglobal(L, "optim");
  }
  lua_pop(L, 1);
}

}  // namespace triage::lua
