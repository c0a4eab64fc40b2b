// What optimizers know of their parameters, by PyTorch's names: for `optimizer:state_dict()` in
// scripts/prelude/optim.lua.
#include "bindings/lua/nn/optimizer.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/tensor.h"

#include <c10/core/GradMode.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <deque>
#include <sstream>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

namespace triage::lua {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamState;
using States = std::decay_t<decltype(std::declval<Optimizer&>().state())>;

/// Newer LibTorch knows parameters by address, older ones by its text.
template <class Key = States::key_type>
Key key_of(const at::Tensor& parameter) {
  if constexpr (std::is_same_v<Key, std::string>) {
    std::ostringstream text;
    text << parameter.unsafeGetTensorImpl();
    return text.str();
  } else {
    return parameter.unsafeGetTensorImpl();
  }
}

/// Pushes the fields into the table on top of the stack.
class Pusher {
 public:
  explicit Pusher(lua_State* L) : L_(L) {}
  void at(const char* name, const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    push_tensor(L_, tensor.detach().clone());
    lua_setfield(L_, -2, name);
  }
  /// PyTorch keeps counts as tensors.
  void count(const char* name, int64_t number) { at(name, at::scalar_tensor(number, at::kFloat)); }
  void at(const char* name, int64_t number) {
    lua_pushinteger(L_, number);
    lua_setfield(L_, -2, name);
  }
  void at(const char* name, double number) {
    lua_pushnumber(L_, number);
    lua_setfield(L_, -2, name);
  }
  template <class List>
  void list(const char* name, const List& tensors) {
    lua_createtable(L_, static_cast<int>(tensors.size()), 0);
    lua_Integer position = 0;
    for (const at::Tensor& tensor : tensors) {
      push_tensor(L_, tensor.detach().clone());
      lua_rawseti(L_, -2, ++position);
    }
    lua_setfield(L_, -2, name);
  }

 private:
  lua_State* L_;
};

/// Reads the fields from the table on top of the stack. What is missing stays as it is.
class OptimizerStateReader {
 public:
  OptimizerStateReader(lua_State* L, const at::Tensor& parameter) : L_(L), parameter_(parameter) {}
  void at(const char* name, at::Tensor& tensor) {
    if (lua_getfield(L_, -1, name) != LUA_TNIL) tensor = own(name);
    lua_pop(L_, 1);
  }
  void count(const char* name, int64_t& number) { at(name, number); }
  void at(const char* name, int64_t& number) {
    double read = static_cast<double>(number);
    at(name, read);
    number = static_cast<int64_t>(read);
  }
  void at(const char* name, double& number) {
    if (lua_getfield(L_, -1, name) != LUA_TNIL) {
      const at::Tensor* const tensor = test_tensor(L_, -1);
      if (!(tensor && tensor->numel() == 1) && lua_type(L_, -1) != LUA_TNUMBER) misfit(name, "a number");
      number = tensor ? tensor->item<double>() : lua_tonumber(L_, -1);
    }
    lua_pop(L_, 1);
  }
  template <class List>
  void list(const char* name, List& tensors) {
    if (lua_getfield(L_, -1, name) != LUA_TNIL) {
      if (lua_type(L_, -1) != LUA_TTABLE) misfit(name, "a list of tensors");
      tensors.clear();
      for (lua_Integer i = 1; i <= static_cast<lua_Integer>(lua_rawlen(L_, -1)); ++i) {
        lua_rawgeti(L_, -1, i);
        tensors.push_back(own(name));
        lua_pop(L_, 1);
      }
    }
    lua_pop(L_, 1);
  }

 private:
  /// As PyTorch does: of the dtype and device of the parameter.
  at::Tensor own(const char* name) {
    const at::Tensor* const tensor = test_tensor(L_, -1);
    if (!tensor) misfit(name, "a tensor");
    return tensor->detach().to(parameter_.options().requires_grad(false), /*non_blocking=*/false, /*copy=*/true);
  }
  [[noreturn]] void misfit(const char* name, const char* expected) {
    throw std::invalid_argument(std::string("`") + name + "` of a parameter: expected " + expected + ", got " +
                                describe(L_, -1));
  }

  lua_State* L_;
  const at::Tensor& parameter_;
};

template <class Visitor>
void visit(torch::optim::SGDParamState& state, Visitor& visitor) {
  visitor.at("momentum_buffer", state.momentum_buffer());
}
template <class State, class Visitor>
void visit_adam(State& state, Visitor& visitor) {
  visitor.count("step", state.step());
  visitor.at("exp_avg", state.exp_avg());
  visitor.at("exp_avg_sq", state.exp_avg_sq());
  visitor.at("max_exp_avg_sq", state.max_exp_avg_sq());
}
template <class Visitor>
void visit(torch::optim::AdamParamState& state, Visitor& visitor) {
  visit_adam(state, visitor);
}
template <class Visitor>
void visit(torch::optim::AdamWParamState& state, Visitor& visitor) {
  visit_adam(state, visitor);
}
template <class Visitor>
void visit(torch::optim::RMSpropParamState& state, Visitor& visitor) {
  visitor.count("step", state.step());
  visitor.at("square_avg", state.square_avg());
  visitor.at("momentum_buffer", state.momentum_buffer());
  visitor.at("grad_avg", state.grad_avg());
}
template <class Visitor>
void visit(torch::optim::LBFGSParamState& state, Visitor& visitor) {
  visitor.at("func_evals", state.func_evals());
  visitor.at("n_iter", state.n_iter());
  visitor.at("t", state.t());
  visitor.at("prev_loss", state.prev_loss());
  visitor.at("d", state.d());
  visitor.at("H_diag", state.H_diag());
  visitor.at("prev_flat_grad", state.prev_flat_grad());
  visitor.list("old_dirs", state.old_dirs());
  visitor.list("old_stps", state.old_stps());
  visitor.list("ro", state.ro());
}

/// Calls `of` with a state of the kind that this optimizer keeps.
template <class Of>
void with_kind(const OptimizerHolder& holder, const Of& of) {
  if (holder.name == "SGD") return of(torch::optim::SGDParamState());
  if (holder.name == "Adam") return of(torch::optim::AdamParamState());
  if (holder.name == "AdamW") return of(torch::optim::AdamWParamState());
  if (holder.name == "RMSprop") return of(torch::optim::RMSpropParamState());
  of(torch::optim::LBFGSParamState());
}

/// core.optimizer_state(optimizer, parameter) -> table of fields; nil where there is none
int get_state(lua_State* L) {
  OptimizerHolder& holder = check_optimizer(L, 1);
  const States& states = holder.optimizer->state();
  const auto found = states.find(key_of(check_tensor(L, 2)));
  if (found == states.end()) return 0;
  lua_newtable(L);
  Pusher pusher(L);
  with_kind(holder, [&](auto kind) { visit(static_cast<decltype(kind)&>(*found->second), pusher); });
  return 1;
}

/// core.set_optimizer_state(optimizer, parameter, table of fields; nil: there is none)
int set_state(lua_State* L) {
  OptimizerHolder& holder = check_optimizer(L, 1);
  const at::Tensor& parameter = check_tensor(L, 2);
  lua_settop(L, 3);
  States& states = holder.optimizer->state();
  if (lua_isnil(L, 3)) {
    states.erase(key_of(parameter));
    return 0;
  }
  const c10::AutoGradMode no_grad(false);
  OptimizerStateReader reader(L, parameter);
  with_kind(holder, [&](auto kind) {
    visit(kind, reader);
    states[key_of(parameter)] = std::make_unique<decltype(kind)>(std::move(kind));
  });
  return 0;
}

}  // namespace

void add_optimizer_state(lua_State* L) {
  static const luaL_Reg functions[] = {
      {"optimizer_state", guarded<get_state>}, {"set_optimizer_state", guarded<set_state>}, {nullptr, nullptr}};
  luaL_setfuncs(L, functions, 0);
}

}  // namespace triage::lua
