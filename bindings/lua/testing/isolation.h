#pragma once
#include <triage/runtime.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/diagnose/verify/verify.h"

/// Policies for `triage isolate` and `triage verify`.
namespace triage::lua {

struct PolicyUnderCheck {
  std::string source;
  ScriptOptions script;                                 // its path, files (none: it is text), what the host gives
  RuntimeOptions runtime;                               // backend, compiler
  std::vector<at::Tensor> params = {};                  // in the order of the signature
  uint64_t seed = 0;                                    // of the random numbers of each call
  std::function<void(Runtime&)> give = {};              // ... to a Runtime, before it loads the policy; null: nothing
  std::vector<Promise> promises = {};                   // of laws
  std::optional<AccumulationConfig> accumulation = {};  // of its flags, where it declares it
};

/// A policy as hosts call it. Its operators are the nodes of its captured graph; where it is none, or more than one,
/// those that its script calls.
class PolicySubject final : public diagnose::VerifySubject {
 public:
  explicit PolicySubject(PolicyUnderCheck policy);
  ~PolicySubject() override;

  diagnose::Tensors call(const diagnose::Tensors& inputs) override;
  diagnose::Tensors call_next(const diagnose::Tensors& inputs) override;
  bool has_state() const override;
  void restart() override;
  std::vector<std::string> output_names() override;
  CodeNames codes() override;
  std::vector<bool> flags_outputs() override;
  std::vector<bool> flags_inputs() override;
  diagnose::Recording record(const diagnose::Tensors& inputs) override;
  std::vector<Promise> promises() const override { return checked_.promises; }
  std::vector<double> numbers() const override;
  std::vector<std::optional<OutputRange>> output_ranges() const override { return policy().signature().output_ranges; }
  AccumulationConfig accumulation() const override;

  const Policy& policy() const;
  /// Whether the last recordings are of one captured graph, not of the script.
  bool is_one_graph() const;

 private:
  std::vector<std::string> texts_of_modules() const;

  struct LoadedPolicy;
  PolicyUnderCheck checked_;
  std::unique_ptr<LoadedPolicy> loaded_;
};

/// The inputs of a signature, and which of them have the samples of the batch in dim 0: by their declared types, where
/// all have types; else those as long as the first, but for tensors as large as one sample of another. Those that
/// `shared` names have none.
std::vector<diagnose::IsolationInput> isolation_inputs(const Signature& signature,
                                                       const std::vector<at::Tensor>& tensors,
                                                       const std::vector<std::string>& shared = {});

}  // namespace triage::lua
