#pragma once
#include "bindings/lua/engine/policy_table.h"
#include "bindings/lua/sandbox/sandbox.h"

#include <triage/front_end.h>

#include <memory>
#include <string_view>

namespace triage::lua {

/// A policy file in a sandboxed Lua state of its own: the Lua front end of `runtime/`.
class LuaScript final : public Script {
 public:
  /// Loads under budget. Throws LoadError, LimitError.
  LuaScript(std::string_view source, const ScriptOptions& options);
  ~LuaScript() override;

  const std::string& name() const override { return policy_.name; }
  const Signature& signature() const override { return policy_.signature; }
  bool fullgraph() const override { return policy_.fullgraph; }
  std::vector<at::Tensor> call(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> params,
                               std::optional<std::chrono::steady_clock::time_point> deadline) override;
  const std::vector<bool>& flags_outputs() const override { return flags_outputs_; }
  std::vector<std::pair<std::string, std::string>> run_tests() override;

 private:
  std::unique_ptr<State> state_;
  PolicyDefinition policy_;
  std::vector<bool> flags_outputs_;
};

}  // namespace triage::lua
