#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "bindings/cli/commands.h"
#include "bindings/lua/engine/policies/lua_script.h"
#include "runtime/policy/state/state_of_call.h"
#include "runtime/policy/state/state_store.h"

/// Calls of a policy's script that no graph answers, for commands that look at what single lines do.
namespace triage::cli {

/// Calls in turn: each leaves its state to the next one.
class ScriptCalls {
 public:
  ScriptCalls(lua::LuaScript& script, std::vector<at::Tensor> params) : script_(script), params_(std::move(params)) {}

  void begin_with(const policy::StateOfKeys& kept);
  void call(const std::vector<at::Tensor>& inputs);
  /// What the next call gets behind its inputs.
  std::vector<at::Tensor> values_for(const std::vector<at::Tensor>& inputs);

 private:
  lua::LuaScript& script_;
  std::vector<at::Tensor> params_;
  policy::StateOfCall state_;
};

/// The inputs that `texts` give (NAME=FILE), in the order of the signature. `codes`: names of codes in what is shown,
/// to which those of flags from files come. Throws UsageError, and what a host gets for inputs of other types.
std::vector<at::Tensor> inputs_of(const CallOptions& options, const std::vector<std::string>& texts,
                                  const lua::LuaScript& script, CodeNames& codes);

}  // namespace triage::cli
