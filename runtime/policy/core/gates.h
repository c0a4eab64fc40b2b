#pragma once
#include "runtime/policy/core/latency_gate.h"
#include "runtime/policy/versions/version.h"

#include <triage/error.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

/// The gates behind the tests of a new version, which works, and may yet be no good in the place of the live one
/// (ReloadGate).
namespace triage::policy {

class PolicyCore;

/// A gate stops a new version.
class GateStop final : public LoadError {
 public:
  /// What is to run in the shadow of the live version.
  struct Shadow {
    PolicyCore* policy;
    std::shared_ptr<PolicyVersion> version;
    std::shared_ptr<const PolicyVersion> beside;  // that it was tried beside
  };
  GateStop(const std::string& what, Source where, std::optional<Shadow> to_shadow)
      : LoadError(what, std::move(where)), shadow(std::move(to_shadow)) {}

  const std::optional<Shadow> shadow;  // nothing: it is refused
};

/// Why a version is more than one graph.
struct MetBreak {
  std::string text;
  Source where;
};

/// What calls and reloads have met in a version.
std::optional<MetBreak> met_break(const PolicyVersion& version);
/// The first break that a capture meets for inputs that the version could not be tried on, because it calls the host
/// for example; nothing where it comes to its end, or fails for another reason. The script ran in part.
std::optional<MetBreak> find_break(PolicyVersion& version, const Kind& kind, at::ArrayRef<at::Tensor> params);

/// What the gates say.
/// `gate`: nothing for a candidate, which gates do not stop.
std::string told_of_break(const MetBreak& met, const PolicyVersion& before, std::optional<ReloadGate> gate);
std::string told_of_slow(const SlowKind& slow, const PolicyVersion& before, double ratio, ReloadGate gate);

}  // namespace triage::policy
