#pragma once
#include "bindings/lua/engine/policies/policy_table.h"
#include "bindings/lua/sandbox/sandbox.h"
#include "runtime/capsule/recording.h"
#include "runtime/capture/tensors/host_memory.h"

#include <triage/front_end.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace triage::lua {

/// A policy file in a sandboxed Lua state of its own: the Lua front end of `runtime/`.
class LuaScript final : public Script, public capsule::HasState {
 public:
  /// Loads under budget. `prepare` may add to the interpreter before the source runs. Throws LoadError, LimitError.
  LuaScript(std::string_view source, const ScriptOptions& options,
            const std::function<void(ScriptState&)>& prepare = {});
  ~LuaScript() override;

  const std::string& name() const override { return policy_.name; }
  const Signature& signature() const override { return policy_.signature; }
  bool fullgraph() const override { return policy_.fullgraph; }
  MaskedRows masked_rows() const override { return policy_.masked_rows; }
  std::optional<OnError> on_error() const override { return policy_.on_error; }
  OnViolation on_violation() const override { return policy_.on_violation; }
  std::optional<AccumulationConfig> accumulation() const override { return policy_.accumulation; }
  std::vector<at::Tensor> call(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> params,
                               std::optional<std::chrono::steady_clock::time_point> deadline) override;
  uint64_t writes() const override;
  Definition definition() const override;
  void keep_locations() noexcept override;
  const std::vector<bool>& flags_outputs() const override { return flags_outputs_; }
  std::vector<std::pair<std::string, std::string>> run_tests() override;
  capsule::Json save_state(capsule::SavedTensors& tensors, const std::vector<std::string>& masked) override;
  void restore_state(const capsule::Json& state, const capsule::RestoredTensors& tensors) override;

  /// What the policy promises of the laws; nothing: its table has no `verify`.
  const std::optional<std::vector<Promise>>& promises() const { return policy_.promises; }

  /// The line that runs now; empty where none does. From the thread that runs the script.
  Source current_line() const;
  /// From the next call on, `watch` is called before each line that runs; null: no more. It raises no error and runs no
  /// Lua.
  void watch_lines(std::function<void(lua_State*, lua_Debug*)> watch);

  /// The parts of a test, by its 0-based index. Each runs under a budget of its own and throws what the script raised.
  size_t test_count() const { return test_count_; }
  std::string test_name(size_t index);
  int test_line(size_t index);  // of its `check`
  std::vector<at::Tensor> test_arguments(size_t index);
  /// The params of the test, in the order of the signature: those it sets, the others at their defaults.
  std::vector<at::Tensor> test_params(size_t index);
  /// The params of the test, then the state that it begins with, for a batch of these inputs.
  std::vector<at::Tensor> test_values(size_t index, at::ArrayRef<at::Tensor> inputs);
  /// What `check` thinks of `outputs`: how they fail it; empty where they pass.
  std::string check_test(size_t index, at::ArrayRef<at::Tensor> outputs);

 private:
  std::optional<capture::ProtectInputs> protect_given();
  void check_state(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> results) const;

  std::unique_ptr<ScriptState> state_;
  capture::HostMemory given_;  // tensors of the host
  bool has_given_ = false;
  PolicyDefinition policy_;
  std::vector<bool> flags_outputs_;
  size_t test_count_ = 0;
  std::optional<std::chrono::steady_clock::time_point> tests_end_;  // while run_tests runs
};

}  // namespace triage::lua
