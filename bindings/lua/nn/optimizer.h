#pragma once
#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <lua.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

/// An optimizer of LibTorch as scripts hold it.
namespace triage::lua {

/// Looks at each option of one kind of optimizer.
class OptionVisitor {
 public:
  virtual ~OptionVisitor() = default;
  virtual void at(const char* name, double& value) = 0;
  virtual void at(const char* name, bool& value) = 0;
  virtual void at(const char* name, int64_t& value) = 0;
  virtual void at(const char* name, std::tuple<double, double>& value) = 0;
  virtual void at(const char* name, c10::optional<int64_t>& value) = 0;
  virtual void at(const char* name, c10::optional<std::string>& value) = 0;
};

struct OptimizerHolder {
  std::string name;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  void (*visit)(torch::optim::OptimizerOptions&, OptionVisitor&) = nullptr;
};

/// Raises where the value is none, or was closed.
OptimizerHolder& check_optimizer(lua_State* L, int index);

/// Adds to `core`, on top of the stack, what optimizers know of their parameters.
void add_optimizer_state(lua_State* L);

}  // namespace triage::lua
