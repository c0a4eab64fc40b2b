#pragma once
#include <optional>

#include "runtime/capsule/recording.h"
#include "runtime/policy/versions/version.h"
#include "runtime/policy/versions/version_call.h"

namespace triage::policy {

/// A call of a version, from which a capsule is made where it fails, where somebody asked for one
/// (capsule::CapsuleRecording::CapsuleRequest), and where the decision log wants one. The answer then has it, or its
/// name.
class RecordedCall {
 public:
  /// `call` outlives it.
  explicit RecordedCall(const VersionCall& call);
  void run(Answer& answer);

 private:
  void failed(const std::exception& error, Answer& answer) noexcept;
  void answered(Answer& answer);
  capsule::Json facts(const Answer& answer);
  capsule::Json facts_of(const Answer& answer);
  capsule::Json params_facts();
  capsule::Json host_tensors();
  capsule::Json node_calls();
  bool leaves_out() const;
  capsule::Json source_facts();
  std::optional<at::Tensor> bad_rows(at::ArrayRef<at::Tensor> outputs) const;
  capsule::Json state_facts(at::ArrayRef<at::Tensor> state, bool masked);
  capsule::Json saved(const std::string& name, const at::Tensor& tensor, bool masked, bool per_sample);

  const VersionCall& call_;
  PolicyVersion& version_;
  std::optional<capsule::CapsuleRecording> own_;
  capsule::CapsuleRecording& recording_;
  std::optional<at::Tensor> rows_;
};

}  // namespace triage::policy
