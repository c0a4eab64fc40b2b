#include "bindings/lua/tensors/autograd.h"

#include "bindings/lua/state/scopes.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/tensors/anomaly.h"
#include "bindings/lua/tensors/calls/overloads.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/constants.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/number.h"
#include "bindings/lua/values/tensor.h"
#include "bindings/lua/values/tensor_list.h"
#include "runtime/capture/compiled.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/replay/trace_replayer.h"
#include "runtime/compat/autocast.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>

namespace triage::lua {
namespace {

/// `mode(fn, ...)` runs fn in the mode and returns what it returns; `mode()` gives a scope for a block.
int in_mode(lua_State* L, bool enabled) {
  constexpr int function = 1;
  const bool for_block = lua_gettop(L) == 0;
  if (!for_block) check_callable(L, function, enabled ? "torch.enable_grad" : "torch.no_grad");
  push_scope(L) = [before = c10::GradMode::is_enabled()] { c10::GradMode::set_enabled(before); };
  c10::GradMode::set_enabled(enabled);
  return for_block ? 1 : call_in_scope(L, function);
}

int no_grad(lua_State* L) { return in_mode(L, false); }
int enable_grad(lua_State* L) { return in_mode(L, true); }

int set_grad_enabled(lua_State* L) {
  const bool enabled = boolean_argument(L, {1, "torch.set_grad_enabled", "mode"});
  lua_remove(L, 1);
  if (lua_gettop(L) > 0) check_callable(L, 1, "torch.set_grad_enabled");
  return in_mode(L, enabled);
}

int is_grad_enabled(lua_State* L) {
  lua_pushboolean(L, c10::GradMode::is_enabled());
  return 1;
}

/// Whatever was deferred meanwhile belongs to the mode that ends. The outermost to end drops the weights that were
/// cast.
void end_autocast(c10::DeviceType device, compat::Autocast before) {
  struct AutocastRestore {
    ~AutocastRestore() {
      if (at::autocast::decrement_nesting() == 0) {
        at::autocast::clear_cache();
        if (auto* recorder = capture::Recorder::current()) recorder->forget_casts();
      }
      compat::set_autocast(device, before);
    }
    c10::DeviceType device;
    compat::Autocast before;
  } const restore{device, before};
  capture::end_segment();
}

/// Pushes a scope of autocast on a device.
void begin_autocast(lua_State* L, c10::DeviceType device, compat::Autocast mode) {
  capture::end_segment();
  push_scope(L) = [device, before = compat::autocast(device)] { end_autocast(device, before); };
  at::autocast::increment_nesting();
  compat::set_autocast(device, mode);
}

compat::Autocast read_autocast_options(lua_State* L, int index, compat::Autocast mode) {
  lua_pushnil(L);
  while (lua_next(L, index)) {
    const std::string key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
    const auto dtype = test_dtype(L, -1);
    specialize_number(L, -1);
    if (key == "enabled" && lua_isboolean(L, -1))
      mode.enabled = lua_toboolean(L, -1);
    else if (key == "dtype" && (dtype == at::kBFloat16 || dtype == at::kHalf))
      mode.dtype = *dtype;
    else
      throw std::invalid_argument("torch.autocast: unknown option '" + key + "' or wrong value (" + describe(L, -1) +
                                  "); options are dtype (torch.bfloat16 or torch.float16) and enabled (boolean)");
    lua_pop(L, 1);
  }
  return mode;
}

/// torch.autocast([device][, {dtype, enabled}][, fn, ...]): fn runs in it; without fn a scope for a block.
int autocast(lua_State* L) {
  int next = 1;
  c10::DeviceType device = c10::kCPU;
  if (lua_type(L, next) == LUA_TSTRING)
    device = on_behalf_of("torch.autocast", [&] { return parse_device(lua_tostring(L, next++)).type(); });
  if (device != c10::kCPU && device != c10::kCUDA)
    throw std::invalid_argument("torch.autocast: expected the device \"cpu\" or \"cuda\", got " + describe(L, 1));
  compat::Autocast mode{true, compat::autocast(device).dtype};
  if (is_options(L, next)) mode = read_autocast_options(L, next++, mode);
  if (device == c10::kCPU && mode.enabled && mode.dtype != at::kBFloat16)
    throw std::invalid_argument("torch.autocast: on the CPU it computes in torch.bfloat16 only");
  const bool for_block = lua_isnone(L, next);
  if (!for_block) check_callable(L, next, "torch.autocast");
  begin_autocast(L, device, mode);
  return for_block ? 1 : call_in_scope(L, next);
}

std::vector<at::Tensor> check_tensors(lua_State* L, int index) {
  if (const at::Tensor* tensor = test_tensor(L, index)) return {*tensor};
  return check_tensor_list(L, index, "torch.autograd.grad");
}

struct GradOptions {
  c10::optional<bool> retain_graph;
  bool create_graph = false, allow_unused = false;
};

GradOptions read_grad_options(lua_State* L, int index) {
  GradOptions options;
  if (lua_isnoneornil(L, index)) return options;
  table_argument(L, {index, "torch.autograd.grad", "options"});
  for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
    const std::string key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : describe(L, -2);
    specialize_number(L, -1);
    const bool value = lua_toboolean(L, -1) != 0;
    if (key == "retain_graph" && lua_isboolean(L, -1))
      options.retain_graph = value;
    else if (key == "create_graph" && lua_isboolean(L, -1))
      options.create_graph = value;
    else if (key == "allow_unused" && lua_isboolean(L, -1))
      options.allow_unused = value;
    else
      throw std::invalid_argument("torch.autograd.grad: unknown option '" + key + "' or wrong value (" +
                                  describe(L, -1) +
                                  "); options are retain_graph, create_graph and allow_unused (booleans)");
  }
  return options;
}

/// torch.autograd.grad(outputs, inputs, grad_outputs or nil, {retain_graph, create_graph, allow_unused}) -> one
/// gradient for each input (nil where it was not used).
int grad(lua_State* L) {
  std::vector<at::Tensor> outputs = check_tensors(L, 1), inputs = check_tensors(L, 2), gradients;
  int options_index = 3;
  bool list_of_gradients = lua_type(L, 3) == LUA_TTABLE && lua_rawlen(L, 3) > 0;
  if (test_tensor(L, 3) || list_of_gradients) gradients = check_tensors(L, 3);
  if (!gradients.empty() || lua_isnil(L, 3)) options_index = 4;
  at_most(L, options_index, "torch.autograd.grad");
  const GradOptions options = read_grad_options(L, options_index);
  check_backward(L, "`torch.autograd.grad`", options.create_graph);
  check_gradients(L, "torch.autograd.grad", outputs, gradients);
  std::vector<at::Tensor> results = torch::autograd::grad(outputs, inputs, gradients, options.retain_graph,
                                                          options.create_graph, options.allow_unused);
  reserve(L, results.size(), "too many gradients");
  for (const at::Tensor& result : results) push_tensor(L, result);
  return static_cast<int>(results.size());
}

}  // namespace

bool is_options(lua_State* L, int index) {
  if (lua_type(L, index) != LUA_TTABLE) return false;
  if (luaL_getmetafield(L, index, "__call") == LUA_TNIL) return true;
  lua_pop(L, 1);
  return false;
}

void touch_autograd(const std::string& what) {
  if (capture::ProtectInputs::active())
    throw std::invalid_argument(what +
                                " is not for policies: gradients belong to the host; it calls autograd on what the "
                                "policy returns, and passes gradients as inputs");
  break_for_autograd(what);
}

void break_for_autograd(const std::string& what) {
  capture::graph_break(capture::Break::autograd, what + " changes autograd state",
                       "Do it outside of the compiled code.");
}

void check_backward(lua_State* L, const std::string& what, bool create_graph) {
  touch_autograd(what);
  charge(L, 0);
  const Context& own = context(L);
  if (!by_contract(L)) return;
  if (create_graph)
    throw std::invalid_argument(what +
                                ": `create_graph` is not for policies, because gradients of gradients may take any "
                                "time and memory; a trusted script may set it");
  if (!own.deadline || own.limits.seconds <= 0) return;
  // Going back takes about twice as long as what it goes back through, which took no longer than all until now.
  const double left = std::chrono::duration<double>(*own.deadline - std::chrono::steady_clock::now()).count();
  const double used = own.limits.seconds - left;
  check_time(L, what, 2e9 * used);
}

void add_autograd(lua_State* L) {
  static const luaL_Reg functions[] = {{"no_grad", guarded<no_grad>},
                                       {"autocast", guarded<autocast>},
                                       {"enable_grad", guarded<enable_grad>},
                                       {"set_grad_enabled", guarded<set_grad_enabled>},
                                       {nullptr, nullptr}};
  luaL_setfuncs(L, functions, 0);  // what is to run takes any arguments
  static const LimitedFunction is_enabled[] = {{"is_grad_enabled", guarded<is_grad_enabled>, 0}};
  set_limited(L, "torch.", is_enabled);
  lua_newtable(L);
  static const LimitedFunction autograd[] = {{"grad", guarded<grad>, 4}};
  set_limited(L, "torch.autograd.", autograd);
  if (!context(L).sandboxed) {                      // all policies of the process run operator by operator in it
    lua_pushcfunction(L, guarded<detect_anomaly>);  // of any arguments
    lua_setfield(L, -2, "detect_anomaly");
  }
  lua_setfield(L, -2, "autograd");
}

}  // namespace triage::lua
