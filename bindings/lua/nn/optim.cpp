// `optim`: LibTorch's optimizers. They update parameters in place, so that captured code sees the new values.
#include "bindings/lua/nn/nn.h"
#include "bindings/lua/state/effects.h"
#include "bindings/lua/state/scopes.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/recording/recorder.h"

#include <c10/core/GradMode.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>

namespace triage::lua {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerOptions;
using torch::optim::OptimizerParamGroup;

const char* const optimizer_type = "triage.optimizer";

struct Holder {
  std::string name;
  std::unique_ptr<Optimizer> optimizer;
};

Holder& check_optimizer(lua_State* L, int index) {
  auto** holder = static_cast<Holder**>(luaL_checkudata(L, index, optimizer_type));
  if (!*holder) luaL_error(L, "this optimizer was closed");
  return **holder;
}

double check_number(lua_State* L, const std::string& key) {
  const double number = lua_type(L, -1) == LUA_TNUMBER ? lua_tonumber(L, -1) : -1;
  if (!(number >= 0) || std::isinf(number))
    throw std::invalid_argument("option '" + key + "': expected a finite number of at least 0, got " + describe(L, -1));
  return number;
}

bool check_boolean(lua_State* L, const std::string& key) {
  if (!lua_isboolean(L, -1))
    throw std::invalid_argument("option '" + key + "': expected a boolean, got " + describe(L, -1));
  return lua_toboolean(L, -1);
}

/// Sets the option `key` to the value on top of the stack; false where there is none of that name.
bool set_option(lua_State* L, torch::optim::SGDOptions& options, const std::string& key) {
  if (key == "lr")
    options.lr(check_number(L, key));
  else if (key == "momentum")
    options.momentum(check_number(L, key));
  else if (key == "dampening")
    options.dampening(check_number(L, key));
  else if (key == "weight_decay")
    options.weight_decay(check_number(L, key));
  else if (key == "nesterov")
    options.nesterov(check_boolean(L, key));
  else
    return false;
  return true;
}

std::tuple<double, double> check_betas(lua_State* L) {
  double betas[2] = {-1, -1};
  const bool is_pair = lua_type(L, -1) == LUA_TTABLE && lua_rawlen(L, -1) == 2;
  for (int i = 0; i < 2 && is_pair; ++i) {
    if (lua_rawgeti(L, -1, i + 1) == LUA_TNUMBER) betas[i] = lua_tonumber(L, -1);
    lua_pop(L, 1);
  }
  for (double beta : betas)
    if (!(beta >= 0 && beta < 1))
      throw std::invalid_argument("option 'betas': expected two numbers from 0 to below 1, as in {0.9, 0.999}, got " +
                                  describe(L, -1));
  return {betas[0], betas[1]};
}

bool set_option(lua_State* L, torch::optim::AdamOptions& options, const std::string& key) {
  if (key == "lr")
    options.lr(check_number(L, key));
  else if (key == "betas")
    options.betas(check_betas(L));
  else if (key == "eps")
    options.eps(check_number(L, key));
  else if (key == "weight_decay")
    options.weight_decay(check_number(L, key));
  else if (key == "amsgrad")
    options.amsgrad(check_boolean(L, key));
  else
    return false;
  return true;
}

const std::vector<std::string>& option_names(const torch::optim::SGDOptions&) {
  static const auto& names = *new std::vector<std::string>{"lr", "momentum", "dampening", "weight_decay", "nesterov"};
  return names;
}

const std::vector<std::string>& option_names(const torch::optim::AdamOptions&) {
  static const auto& names = *new std::vector<std::string>{"lr", "betas", "eps", "weight_decay", "amsgrad"};
  return names;
}

/// Reads the options in the table at `index`; `params` is none of them.
template <typename Options>
void read_options(lua_State* L, int index, Options& options) {
  lua_pushnil(L);
  while (lua_next(L, index)) {
    const bool named = lua_type(L, -2) == LUA_TSTRING;
    const std::string key = named ? lua_tostring(L, -2) : describe(L, -2);
    if (key != "params" && !(named && set_option(L, options, key))) {
      std::string known;
      for (const auto& name : option_names(options)) known += (known.empty() ? "" : ", ") + name;
      throw std::invalid_argument("there is no option '" + key + "'" +
                                  did_you_mean(close_words(key, option_names(options))) + " (options: " + known + ")");
    }
    lua_pop(L, 1);
  }
}

std::vector<at::Tensor> read_parameters(lua_State* L, int index) {
  std::vector<at::Tensor> parameters;
  const auto count = lua_type(L, index) == LUA_TTABLE ? static_cast<lua_Integer>(lua_rawlen(L, index)) : 0;
  for (lua_Integer i = 1; i <= count; ++i) {
    lua_rawgeti(L, index, i);
    const at::Tensor* tensor = test_tensor(L, -1);
    const std::string which = "parameter " + std::to_string(i);
    if (!tensor) throw std::invalid_argument(which + " is " + describe(L, -1) + ", expected a tensor");
    if (!tensor->is_leaf())
      throw std::invalid_argument(which +
                                  " is the result of an operation, and nothing would be trained; pass the tensors of "
                                  "model:parameters()");
    for (const at::Tensor& other : parameters)
      if (other.is_same(*tensor)) throw std::invalid_argument(which + " is in the list twice");
    parameters.push_back(*tensor);
    lua_pop(L, 1);
  }
  if (parameters.empty())
    throw std::invalid_argument("expected a list of parameters, as in model:parameters(), got " + describe(L, index));
  return parameters;
}

/// The groups of the list at 1, which holds tensors, or tables {params = {...}, lr = ...}.
template <typename Options>
std::vector<OptimizerParamGroup> read_groups(lua_State* L, const Options& defaults) {
  std::vector<OptimizerParamGroup> groups;
  const auto add = [&](int parameters, const Options& options) {
    groups.emplace_back(read_parameters(L, parameters), std::make_unique<Options>(options));
  };
  const bool grouped = lua_type(L, 1) == LUA_TTABLE && lua_rawgeti(L, 1, 1) == LUA_TTABLE;
  lua_settop(L, 2);
  if (!grouped) {
    add(1, defaults);
    return groups;
  }
  for (lua_Integer i = 1; i <= static_cast<lua_Integer>(lua_rawlen(L, 1)); ++i) {
    if (lua_rawgeti(L, 1, i) != LUA_TTABLE)
      throw std::invalid_argument("group " + std::to_string(i) + ": expected a table {params = {...}, lr = ...}, got " +
                                  describe(L, -1));
    const int group = lua_gettop(L);
    Options options = defaults;
    read_options(L, group, options);
    lua_getfield(L, group, "params");
    add(group + 1, options);
    lua_settop(L, group - 1);
  }
  return groups;
}

void check_consistent(const torch::optim::SGDOptions& options) {
  if (options.nesterov() && (options.momentum() <= 0 || options.dampening() != 0))
    throw std::invalid_argument("option 'nesterov' needs a momentum above 0 and no dampening");
}
void check_consistent(const torch::optim::AdamOptions&) {}

void break_graph(const std::string& what) {
  capture::graph_break(capture::Break::training_step, what, "Compile the forward pass, and train outside of it.");
}

/// optim.NAME(parameters, options)
template <typename Kind, typename Options>
int create(lua_State* L, const char* name, Options defaults) {
  lua_settop(L, 2);
  break_graph(std::string("`optim.") + name + "` keeps the parameters it is given");
  auto holder = std::make_unique<Holder>();
  holder->name = name;
  try {
    if (lua_type(L, 2) == LUA_TTABLE)
      read_options(L, 2, defaults);
    else if (!lua_isnil(L, 2))
      throw std::invalid_argument("expected a table of options, as in {lr = 0.1}, got " + describe(L, 2));
    auto groups = read_groups(L, defaults);
    for (const auto& group : groups) check_consistent(static_cast<const Options&>(group.options()));
    holder->optimizer = std::make_unique<Kind>(std::move(groups), defaults);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(std::string("optim.") + name + ": " + error.what());
  }
  auto** box = static_cast<Holder**>(lua_newuserdatauv(L, sizeof(Holder*), 0));
  *box = holder.release();
  luaL_setmetatable(L, optimizer_type);
  return 1;
}

int sgd(lua_State* L) { return create<torch::optim::SGD>(L, "SGD", torch::optim::SGDOptions(1e-3)); }
int adam(lua_State* L) { return create<torch::optim::Adam>(L, "Adam", torch::optim::AdamOptions(1e-3)); }

bool has_gradients(const Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups())
    for (const auto& parameter : group.params())
      if (parameter.grad().defined()) return true;
  return false;
}

/// optimizer:step() or optimizer:step(closure): the closure computes the loss again and calls backward; returns its loss.
int step(lua_State* L) {
  Holder& holder = check_optimizer(L, 1);
  refuse_in_selection(L, "a step of an optimizer");
  break_graph("`step` of an optimizer writes to the parameters");
  const bool closure = !lua_isnoneornil(L, 2);
  if (closure) check_callable(L, 2, "optimizer:step");
  if (closure) {
    lua_settop(L, 2);
    push_scope_of<c10::AutoGradMode>(L, true);
    call_in_scope(L, 2);
    lua_settop(L, 3);
  }
  if (!has_gradients(*holder.optimizer))
    throw std::runtime_error(
        "optim." + holder.name +
        ": step: no parameter has a gradient, so nothing would change; call loss:backward() first");
  holder.optimizer->step();
  return closure ? 1 : 0;
}

int zero_grad(lua_State* L) {
  Holder& holder = check_optimizer(L, 1);
  refuse_in_selection(L, "`zero_grad` of an optimizer");
  break_graph("`zero_grad` drops gradients");
  for (auto& group : holder.optimizer->param_groups())
    for (auto& parameter : group.params()) parameter.mutable_grad() = at::Tensor();
  return 0;
}

constexpr LimitedFunction methods[] = {{"optimizer:step", guarded<step>, 2},
                                       {"optimizer:zero_grad", guarded<zero_grad>, 1}};

/// optimizer.lr: that of the first group
int index(lua_State* L) {
  Holder& holder = check_optimizer(L, 1);
  const std::string key = luaL_checkstring(L, 2);
  if (key == "lr") {
    lua_pushnumber(L, holder.optimizer->param_groups().at(0).options().get_lr());
    return 1;
  }
  for (const auto& [name, function, most] : methods)
    if ("optimizer:" + key == name) {
      push_limited(L, name, function, most);
      return 1;
    }
  throw std::invalid_argument("optim." + holder.name + " has no '" + key + "'; there are step, zero_grad and lr");
}

/// optimizer.lr = x: of all groups
int newindex(lua_State* L) {
  Holder& holder = check_optimizer(L, 1);
  const std::string key = luaL_checkstring(L, 2);
  if (key != "lr")
    throw std::invalid_argument("optim." + holder.name + ": only `lr` can be set, not '" + key +
                                "'; pass other options when you create the optimizer");
  lua_settop(L, 3);
  const double lr = check_number(L, "lr");
  for (auto& group : holder.optimizer->param_groups()) group.options().set_lr(lr);
  return 0;
}

int to_string(lua_State* L) {
  Holder& holder = check_optimizer(L, 1);
  size_t count = 0;
  for (const auto& group : holder.optimizer->param_groups()) count += group.params().size();
  lua_pushfstring(L, "%s(%d parameters, lr = %f)", holder.name.c_str(), static_cast<int>(count),
                  holder.optimizer->param_groups().at(0).options().get_lr());
  return 1;
}

int collect(lua_State* L) {
  delete std::exchange(*static_cast<Holder**>(luaL_checkudata(L, 1, optimizer_type)), nullptr);
  return 0;
}

}  // namespace

void push_optim(lua_State* L) {
  static const luaL_Reg meta[] = {{"__index", guarded<index>},
                                  {"__newindex", guarded<newindex>},
                                  {"__tostring", guarded<to_string>},
                                  {"__gc", guarded<collect>},
                                  {nullptr, nullptr}};
  luaL_newmetatable(L, optimizer_type);
  luaL_setfuncs(L, meta, 0);
  lua_pushliteral(L, "optimizer");
  lua_setfield(L, -2, "__metatable");
  lua_pop(L, 1);
  static const LimitedFunction functions[] = {{"SGD", guarded<sgd>, 2}, {"Adam", guarded<adam>, 2}};
  lua_newtable(L);
  set_limited(L, "optim.", functions);
}

}  // namespace triage::lua
