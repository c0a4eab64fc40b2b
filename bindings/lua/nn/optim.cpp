// `optim`: LibTorch's optimizers. They update parameters in place, so that captured code sees the new values.
#include "bindings/lua/nn/nn.h"
#include "bindings/lua/nn/optimizer.h"
#include "bindings/lua/state/effects.h"
#include "bindings/lua/state/protected.h"
#include "bindings/lua/state/scopes.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/tensors/torch.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/recording/recorder.h"

#include <c10/core/GradMode.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

namespace triage::lua {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerOptions;
using torch::optim::OptimizerParamGroup;

const char* const optimizer_type = "triage.optimizer";

void visit(torch::optim::SGDOptions& options, OptionVisitor& visitor) {
  visitor.at("lr", options.lr());
  visitor.at("momentum", options.momentum());
  visitor.at("dampening", options.dampening());
  visitor.at("weight_decay", options.weight_decay());
  visitor.at("nesterov", options.nesterov());
}

template <typename Options>
void visit_adam(Options& options, OptionVisitor& visitor) {
  visitor.at("lr", options.lr());
  visitor.at("betas", options.betas());
  visitor.at("eps", options.eps());
  visitor.at("weight_decay", options.weight_decay());
  visitor.at("amsgrad", options.amsgrad());
}
void visit(torch::optim::AdamOptions& options, OptionVisitor& visitor) { visit_adam(options, visitor); }
void visit(torch::optim::AdamWOptions& options, OptionVisitor& visitor) { visit_adam(options, visitor); }

void visit(torch::optim::RMSpropOptions& options, OptionVisitor& visitor) {
  visitor.at("lr", options.lr());
  visitor.at("alpha", options.alpha());
  visitor.at("eps", options.eps());
  visitor.at("weight_decay", options.weight_decay());
  visitor.at("momentum", options.momentum());
  visitor.at("centered", options.centered());
}

void visit(torch::optim::LBFGSOptions& options, OptionVisitor& visitor) {
  visitor.at("lr", options.lr());
  visitor.at("max_iter", options.max_iter());
  visitor.at("max_eval", options.max_eval());
  visitor.at("tolerance_grad", options.tolerance_grad());
  visitor.at("tolerance_change", options.tolerance_change());
  visitor.at("history_size", options.history_size());
  visitor.at("line_search_fn", options.line_search_fn());
}

template <typename Options>
void visit_any(OptimizerOptions& options, OptionVisitor& visitor) {
  visit(static_cast<Options&>(options), visitor);
}

[[noreturn]] void misfit(lua_State* L, const std::string& key, const char* expected) {
  throw std::invalid_argument("option '" + key + "': expected " + expected + ", got " + describe(L, -1));
}

double check_number(lua_State* L, const std::string& key) {
  const double number = lua_type(L, -1) == LUA_TNUMBER ? lua_tonumber(L, -1) : -1;
  if (!(number >= 0) || std::isinf(number)) misfit(L, key, "a finite number of at least 0");
  return number;
}

int64_t check_count(lua_State* L, const std::string& key) {
  if (!lua_isinteger(L, -1) || lua_tointeger(L, -1) < 1) misfit(L, key, "an integer of at least 1");
  return lua_tointeger(L, -1);
}

std::tuple<double, double> check_betas(lua_State* L) {
  double betas[2] = {-1, -1};
  const bool is_pair = lua_type(L, -1) == LUA_TTABLE && lua_rawlen(L, -1) == 2;
  for (int i = 0; i < 2 && is_pair; ++i) {
    if (lua_rawgeti(L, -1, i + 1) == LUA_TNUMBER) betas[i] = lua_tonumber(L, -1);
    lua_pop(L, 1);
  }
  for (double beta : betas)
    if (!(beta >= 0 && beta < 1)) misfit(L, "betas", "two numbers from 0 to below 1, as in {0.9, 0.999}");
  return {betas[0], betas[1]};
}

class Names final : public OptionVisitor {
 public:
  std::vector<std::string> names;
  void at(const char* name, double&) override { names.emplace_back(name); }
  void at(const char* name, bool&) override { names.emplace_back(name); }
  void at(const char* name, int64_t&) override { names.emplace_back(name); }
  void at(const char* name, std::tuple<double, double>&) override { names.emplace_back(name); }
  void at(const char* name, c10::optional<int64_t>&) override { names.emplace_back(name); }
  void at(const char* name, c10::optional<std::string>&) override { names.emplace_back(name); }
};

/// Sets the option `key` to the value on top of the stack.
class Setter final : public OptionVisitor {
 public:
  Setter(lua_State* L, std::string key) : L_(L), key_(std::move(key)) {}
  bool found = false;
  void at(const char* name, double& value) override {
    if (is(name)) value = check_number(L_, key_);
  }
  void at(const char* name, bool& value) override {
    if (!is(name)) return;
    if (!lua_isboolean(L_, -1)) misfit(L_, key_, "a boolean");
    value = lua_toboolean(L_, -1);
  }
  void at(const char* name, int64_t& value) override {
    if (is(name)) value = check_count(L_, key_);
  }
  void at(const char* name, std::tuple<double, double>& value) override {
    if (is(name)) value = check_betas(L_);
  }
  void at(const char* name, c10::optional<int64_t>& value) override {
    if (is(name)) value = check_count(L_, key_);
  }
  void at(const char* name, c10::optional<std::string>& value) override {
    if (!is(name)) return;
    if (lua_type(L_, -1) != LUA_TSTRING || std::string(lua_tostring(L_, -1)) != "strong_wolfe")
      misfit(L_, key_, "\"strong_wolfe\"");
    value = "strong_wolfe";
  }

 private:
  bool is(const char* name) {
    const bool meant = key_ == name;
    found |= meant;
    return meant;
  }
  lua_State* L_;
  const std::string key_;
};

/// Pushes the option `key`.
class Getter final : public OptionVisitor {
 public:
  Getter(lua_State* L, std::string key) : L_(L), key_(std::move(key)) {}
  bool found = false;
  void at(const char* name, double& value) override {
    if (is(name)) lua_pushnumber(L_, value);
  }
  void at(const char* name, bool& value) override {
    if (is(name)) lua_pushboolean(L_, value);
  }
  void at(const char* name, int64_t& value) override {
    if (is(name)) lua_pushinteger(L_, value);
  }
  void at(const char* name, std::tuple<double, double>& value) override {
    if (!is(name)) return;
    lua_createtable(L_, 2, 0);
    lua_pushnumber(L_, std::get<0>(value));
    lua_rawseti(L_, -2, 1);
    lua_pushnumber(L_, std::get<1>(value));
    lua_rawseti(L_, -2, 2);
  }
  void at(const char* name, c10::optional<int64_t>& value) override {
    if (!is(name)) return;
    if (value)
      lua_pushinteger(L_, *value);
    else
      lua_pushnil(L_);
  }
  void at(const char* name, c10::optional<std::string>& value) override {
    if (is(name)) lua_pushstring(L_, value ? value->c_str() : nullptr);
  }

 private:
  bool is(const char* name) {
    const bool meant = key_ == name;
    found |= meant;
    return meant;
  }
  lua_State* L_;
  const std::string key_;
};

[[noreturn]] void unknown_option(const std::string& key, const std::vector<std::string>& names) {
  std::string known;
  for (const auto& name : names) known += (known.empty() ? "" : ", ") + name;
  throw std::invalid_argument("there is no option '" + key + "'" + did_you_mean(close_words(key, names)) +
                              " (options: " + known + ")");
}

/// Reads the options in the table at `index`; `params` is none of them.
template <typename Options>
void read_options(lua_State* L, int index, Options& options) {
  lua_pushnil(L);
  while (lua_next(L, index)) {
    const bool named = lua_type(L, -2) == LUA_TSTRING;
    const std::string key = named ? lua_tostring(L, -2) : describe(L, -2);
    Setter setter(L, key);
    if (named && key != "params") visit(options, setter);
    if (key != "params" && !setter.found) {
      Names all;
      visit(options, all);
      unknown_option(key, all.names);
    }
    lua_pop(L, 1);
  }
}

/// `groups`: those read before.
std::vector<at::Tensor> read_parameters(lua_State* L, int index, const std::vector<OptimizerParamGroup>& groups) {
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
    for (const OptimizerParamGroup& group : groups)
      for (const at::Tensor& other : group.params())
        if (other.is_same(*tensor))
          throw std::invalid_argument(which + " is in an earlier group, too; each step would change it twice");
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
    groups.emplace_back(read_parameters(L, parameters, groups), std::make_unique<Options>(options));
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
template <typename Options>
void check_consistent(const Options&) {}

void break_graph(const std::string& what) {
  capture::graph_break(capture::Break::training_step, what, "Compile the forward pass, and train outside of it.");
}

/// optim.NAME(parameters, options)
template <typename Kind, typename Options>
int create(lua_State* L, const char* name, Options defaults) {
  lua_settop(L, 2);
  break_graph(std::string("`optim.") + name + "` keeps the parameters it is given");
  auto holder = std::make_unique<OptimizerHolder>();
  holder->name = name;
  holder->visit = visit_any<Options>;
  try {
    if (lua_type(L, 2) == LUA_TTABLE)
      read_options(L, 2, defaults);
    else if (!lua_isnil(L, 2))
      throw std::invalid_argument("expected a table of options, as in {lr = 0.1}, got " + describe(L, 2));
    auto groups = read_groups(L, defaults);
    if (std::is_same_v<Kind, torch::optim::LBFGS> && groups.size() > 1)
      throw std::invalid_argument("expected one list of parameters, got several groups, which it does not have");
    for (const auto& group : groups) check_consistent(static_cast<const Options&>(group.options()));
    holder->optimizer = std::make_unique<Kind>(std::move(groups), defaults);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(std::string("optim.") + name + ": " + error.what());
  }
  auto** box = static_cast<OptimizerHolder**>(lua_newuserdatauv(L, sizeof(OptimizerHolder*), 0));
  *box = holder.release();
  luaL_setmetatable(L, optimizer_type);
  return 1;
}

int sgd(lua_State* L) { return create<torch::optim::SGD>(L, "SGD", torch::optim::SGDOptions(1e-3)); }
int adam(lua_State* L) { return create<torch::optim::Adam>(L, "Adam", torch::optim::AdamOptions(1e-3)); }
int adamw(lua_State* L) { return create<torch::optim::AdamW>(L, "AdamW", torch::optim::AdamWOptions(1e-3)); }
int rmsprop(lua_State* L) { return create<torch::optim::RMSprop>(L, "RMSprop", torch::optim::RMSpropOptions(1e-2)); }
int lbfgs(lua_State* L) { return create<torch::optim::LBFGS>(L, "LBFGS", torch::optim::LBFGSOptions(1)); }

bool has_gradients(const Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups())
    for (const auto& parameter : group.params())
      if (parameter.grad().defined()) return true;
  return false;
}

/// Calls the closure at 2, with gradients on; its result lies on top of the stack then.
void call_closure(lua_State* L) {
  lua_settop(L, 2);
  push_scope_of<c10::AutoGradMode>(L, true);
  call_in_scope(L, 2);
  lua_settop(L, 3);
}

void check_gradients(const OptimizerHolder& holder) {
  if (!has_gradients(*holder.optimizer))
    throw std::runtime_error(
        "optim." + holder.name +
        ": step: no parameter has a gradient, so nothing would change; call loss:backward() first");
}

/// A value that the registry holds while this lives.
class RegistryReference {
 public:
  RegistryReference(lua_State* L, int index) : L_(L) {
    lua_pushvalue(L, index);
    reference_ = luaL_ref(L, LUA_REGISTRYINDEX);
  }
  ~RegistryReference() { luaL_unref(L_, LUA_REGISTRYINDEX, reference_); }
  RegistryReference(const RegistryReference&) = delete;
  RegistryReference& operator=(const RegistryReference&) = delete;
  void push() const { lua_rawgeti(L_, LUA_REGISTRYINDEX, reference_); }

 private:
  lua_State* L_;
  int reference_;
};

/// LBFGS calls the closure itself, several times. An error in it ends the step; the parameters stay where the search
/// was.
int step_of_lbfgs(lua_State* L, OptimizerHolder& holder) {
  if (lua_isnoneornil(L, 2))
    throw std::invalid_argument(
        "optim.LBFGS: step: expected a function that computes the loss again and calls backward, got nil");
  check_callable(L, 2, "optimizer:step");
  const RegistryReference closure(L, 2);
  const at::Tensor loss = holder.optimizer->step([&] {
    at::Tensor computed;
    in_protected_call(L, [&](lua_State*) {
      lua_settop(L, 1);
      closure.push();
      call_closure(L);
      const at::Tensor* result = test_tensor(L, 3);
      if (!result || result->numel() != 1)
        throw std::invalid_argument(
            "optim.LBFGS: step: expected the loss, a tensor of one element, from the function, got " + describe(L, 3));
      check_gradients(holder);
      computed = result->detach();
    });
    return computed;
  });
  push_tensor(L, loss);
  return 1;
}

/// optimizer:step() or optimizer:step(closure): the closure computes the loss again and calls backward; returns its
/// loss.
int step(lua_State* L) {
  OptimizerHolder& holder = check_optimizer(L, 1);
  refuse_in_selection(L, "a step of an optimizer");
  break_graph("`step` of an optimizer writes to the parameters");
  if (holder.name == "LBFGS") return step_of_lbfgs(L, holder);
  const bool closure = !lua_isnoneornil(L, 2);
  if (closure) {
    check_callable(L, 2, "optimizer:step");
    call_closure(L);
  }
  check_gradients(holder);
  holder.optimizer->step();
  return closure ? 1 : 0;
}

int zero_grad(lua_State* L) {
  OptimizerHolder& holder = check_optimizer(L, 1);
  refuse_in_selection(L, "`zero_grad` of an optimizer");
  break_graph("`zero_grad` drops gradients");
  for (auto& group : holder.optimizer->param_groups())
    for (auto& parameter : group.params()) parameter.mutable_grad() = at::Tensor();
  return 0;
}

constexpr LimitedFunction methods[] = {{"optimizer:step", guarded<step>, 2},
                                       {"optimizer:zero_grad", guarded<zero_grad>, 1}};

/// optimizer.lr: that of the first group; optimizer.param_groups and the state: see scripts/prelude/optim.lua
int index(lua_State* L) {
  OptimizerHolder& holder = check_optimizer(L, 1);
  const std::string key = luaL_checkstring(L, 2);
  if (key == "lr") {
    lua_pushnumber(L, holder.optimizer->param_groups().at(0).options().get_lr());
    return 1;
  }
  if (key == "param_groups") {
    push_core(L);
    lua_getfield(L, -1, "param_groups");
    lua_pushvalue(L, 1);
    lua_call(L, 1, 1);
    return 1;
  }
  for (const auto& [name, function, most] : methods)
    if ("optimizer:" + key == name) {
      push_limited(L, name, function, most);
      return 1;
    }
  if (key == "state_dict" || key == "load_state_dict") {
    push_core(L);
    lua_getfield(L, -1, key == "state_dict" ? "optimizer_state_dict" : "load_optimizer_state");
    return 1;
  }
  throw std::invalid_argument("optim." + holder.name + " has no '" + key +
                              "'; there are step, zero_grad, state_dict, load_state_dict, lr and param_groups");
}

/// optimizer.lr = x: of all groups
int newindex(lua_State* L) {
  OptimizerHolder& holder = check_optimizer(L, 1);
  const std::string key = luaL_checkstring(L, 2);
  if (key != "lr")
    throw std::invalid_argument("optim." + holder.name + ": only `lr` can be set, not '" + key +
                                "'; pass other options when you create the optimizer, or set them in its param_groups");
  lua_settop(L, 3);
  break_graph("`lr` of an optimizer is set");
  const double lr = check_number(L, "lr");
  for (auto& group : holder.optimizer->param_groups()) group.options().set_lr(lr);
  return 0;
}

OptimizerParamGroup& check_group(lua_State* L, OptimizerHolder& holder) {
  return holder.optimizer->param_groups().at(static_cast<size_t>(luaL_checkinteger(L, 2) - 1));
}

/// core.is_optimizer(value)
int is_optimizer(lua_State* L) {
  lua_pushboolean(L, luaL_testudata(L, 1, optimizer_type) != nullptr);
  return 1;
}

/// core.optimizer_groups(optimizer) -> how many
int count_groups(lua_State* L) {
  lua_pushinteger(L, static_cast<lua_Integer>(check_optimizer(L, 1).optimizer->param_groups().size()));
  return 1;
}

/// core.optimizer_option(optimizer, group, name) -> value; nil: it has no such option
int get_group_option(lua_State* L) {
  OptimizerHolder& holder = check_optimizer(L, 1);
  OptimizerParamGroup& group = check_group(L, holder);
  const std::string key = luaL_checkstring(L, 3);
  if (key == "params") {
    lua_newtable(L);
    lua_Integer position = 0;
    for (const at::Tensor& parameter : group.params()) {
      push_tensor(L, parameter);
      lua_rawseti(L, -2, ++position);
    }
    return 1;
  }
  Getter getter(L, key);
  holder.visit(group.options(), getter);
  if (!getter.found) lua_pushnil(L);
  return 1;
}

/// core.optimizer_option_names(optimizer, group) -> list
int option_names(lua_State* L) {
  OptimizerHolder& holder = check_optimizer(L, 1);
  Names all;
  holder.visit(check_group(L, holder).options(), all);
  lua_newtable(L);
  lua_Integer position = 0;
  for (const std::string& name : all.names) {
    lua_pushlstring(L, name.data(), name.size());
    lua_rawseti(L, -2, ++position);
  }
  return 1;
}

/// core.set_optimizer_option(optimizer, group, name, value)
int set_group_option(lua_State* L) {
  OptimizerHolder& holder = check_optimizer(L, 1);
  lua_settop(L, 4);
  break_graph("an option of an optimizer is set");
  OptimizerParamGroup& group = check_group(L, holder);
  const std::string key = luaL_checkstring(L, 3);
  return on_behalf_of(("optim." + holder.name).c_str(), [&] {
    Setter setter(L, key);
    holder.visit(group.options(), setter);
    if (setter.found) return 0;
    Names all;
    holder.visit(group.options(), all);
    unknown_option(key, all.names);
  });
}

int to_string(lua_State* L) {
  OptimizerHolder& holder = check_optimizer(L, 1);
  size_t count = 0;
  for (const auto& group : holder.optimizer->param_groups()) count += group.params().size();
  lua_pushfstring(L, "%s(%d parameters, lr = %f)", holder.name.c_str(), static_cast<int>(count),
                  holder.optimizer->param_groups().at(0).options().get_lr());
  return 1;
}

int collect(lua_State* L) {
  delete std::exchange(*static_cast<OptimizerHolder**>(luaL_checkudata(L, 1, optimizer_type)), nullptr);
  return 0;
}

}  // namespace

OptimizerHolder& check_optimizer(lua_State* L, int index) {
  auto** holder = static_cast<OptimizerHolder**>(luaL_checkudata(L, index, optimizer_type));
  if (!*holder) luaL_error(L, "this optimizer was closed");
  return **holder;
}

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
  push_core(L);
  static const luaL_Reg of_core[] = {{"is_optimizer", guarded<is_optimizer>},
                                     {"optimizer_groups", guarded<count_groups>},
                                     {"optimizer_option", guarded<get_group_option>},
                                     {"optimizer_option_names", guarded<option_names>},
                                     {"set_optimizer_option", guarded<set_group_option>},
                                     {nullptr, nullptr}};
  luaL_setfuncs(L, of_core, 0);
  add_optimizer_state(L);
  lua_pop(L, 1);
  static const LimitedFunction functions[] = {{"SGD", guarded<sgd>, 2},
                                              {"Adam", guarded<adam>, 2},
                                              {"AdamW", guarded<adamw>, 2},
                                              {"RMSprop", guarded<rmsprop>, 2},
                                              {"LBFGS", guarded<lbfgs>, 2}};
  lua_newtable(L);
  set_limited(L, "optim.", functions);
}

}  // namespace triage::lua
