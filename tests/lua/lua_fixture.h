#pragma once
#include "bindings/lua/engine/script_state.h"
#include "bindings/lua/sandbox/sandbox.h"
#include "bindings/lua/state/protected.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/values/tensor.h"

#include <string>
#include <vector>

/// A fresh trusted state for tests, and what tests do with one.
namespace triage::lua::testing {

inline StateOptions trusted_options() {
  StateOptions options;
  options.sandboxed = false;
  options.path = "test.lua";
  options.limits = {0, 0.0, 0, 0};
  return options;
}

class Fixture {
 public:
  explicit Fixture(StateOptions options = trusted_options()) : state_(make_script_state(std::move(options))) {}
  lua_State* lua() { return state_->lua(); }
  Context& context() { return state_->context(); }
  ScriptState& state() { return *state_; }

  /// Runs source (rewritten) with tensors as its arguments and returns the tensors it gives. Throws what the script
  /// raised.
  std::vector<at::Tensor> run(const std::string& source, const std::vector<at::Tensor>& arguments = {});
  at::Tensor run1(const std::string& source, const std::vector<at::Tensor>& arguments = {}) {
    return run(source, arguments).at(0);
  }
  /// The message of the error that the source raises; empty when it raises none.
  std::string error_of(const std::string& source);

 private:
  std::unique_ptr<ScriptState> state_;
};

/// Equal in dtype, shape and bits; one NaN equals another.
bool same_bits(const at::Tensor& a, const at::Tensor& b);

}  // namespace triage::lua::testing
