#pragma once
#include "runtime/capture/compiled.h"
#include "runtime/operators/untrusted.h"
#include "runtime/policy/attribution/counters.h"
#include "runtime/policy/files/contents.h"
#include "runtime/policy/params/param_values.h"
#include "runtime/policy/trials/answer_forms.h"
#include "runtime/policy/trials/output_types.h"
#include "runtime/policy/trials/trial.h"

#include <triage/front_end.h>
#include <triage/runtime.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace triage::policy {

/// One version of a policy: a script that was loaded, with its captured graphs. All but `since`, which the policy's
/// mutex guards, may be used by any thread.
class PolicyVersion {
 public:
  /// Sets `options.counts`.
  PolicyVersion(std::shared_ptr<Script> script, capture::Compiled::Options options, Contents contents,
                std::string path);
  ~PolicyVersion() { counters->end(); }
  /// Flags of this version go where nobody looks at them: its locations keep their names when it is gone.
  void keep_locations() const noexcept { script_->keep_locations(); }

  int number = 0;     // given when it goes live for the first time, or becomes a candidate, then fixed
  uint64_t turn = 0;  // the order of going live for the first time; guarded by the policy's mutex
  std::chrono::system_clock::time_point since;
  const Contents contents;
  const std::string hash;
  const std::string path;
  const std::string name;
  const Signature signature;  // as the script stated it at load
  const OutputTypes output_types;
  const Source defined_at;  // where its function begins; empty where that is not known
  const std::optional<OnError> on_error;
  const OnViolation on_violation;  // of outputs with a declared range
  /// Of its calls; they outlive the version.
  const std::shared_ptr<Counters> counters;
  capture::Compiled compiled;
  std::optional<operators::Untrusted::Terms> terms = {};  // what its graphs are held to; nothing: it is trusted
  std::vector<Kind> kinds;                                // of inputs in use when it was loaded; fixed once it is live
  bool breaks_graphs = false;                             // as far as a reload has seen; fixed once it is live
  std::set<std::string> former_params;  // that earlier versions had and this one has not; fixed once it is live
  std::atomic<bool> has_run{false};     // answered a call of its own, in the form that was expected
  std::atomic<bool> taken_back{false};  // failed on trial, or too often in a row
  Trial trial;
  AnswerForms forms;  // of its answers, and of those of the versions before it
  std::atomic<uint64_t> failures{0};
  mutable std::atomic<uint64_t> violations{0};  // calls with samples out of a declared range
  std::atomic<uint32_t> failures_in_row{0};     // since the last call that was answered

  /// Whether it may answer in place of a version that fails.
  bool can_stand_in() const { return !taken_back && !trial.on() && (has_run || trial.tried()); }
  std::vector<Kind> kinds_in_use() const;
  const operators::Untrusted::Terms* held_to() const { return terms ? &*terms : nullptr; }

  /// The signature with outputs named `out0`, ... where the script gave no names but has shown how many there are.
  Signature known_signature() const;
  VersionInfo info() const;  // all but live, pinned and last_error

 private:
  const std::shared_ptr<Script> script_;
};

/// What `choose` returns while `version` counts as taken back, and so can answer for none. Where that throws, it does
/// not.
template <class Choose>
auto take_back(PolicyVersion& version, const Choose& choose) {
  version.taken_back = true;
  try {
    return choose();
  } catch (const std::exception&) {
    version.taken_back = false;
    throw;
  }
}

/// The params of a call, in the order of the signature: numbers and booleans as 0-dim tensors that count as wrapped
/// numbers in type promotion, as Python numbers do; lists as 1-D tensors. Made of the defaults, then of `values`;
/// passed over are names that the signature lacks, and values that do not fit or are not allowed: a host set them while
/// a version with another type or range of this param was live.
std::vector<at::Tensor> param_tensors(const Signature& signature, const Params& values);
/// The same with `values` of one call on top of `base`. Throws InputError for a name that the signature lacks, and for
/// a value that does not fit or is not allowed.
std::vector<at::Tensor> override_params(const PolicyVersion& version, std::vector<at::Tensor> base,
                                        const Params& values, Reading reading = Reading::small);

/// Throws InputError where a policy that no Runtime has loaded does not take `values`, all elements of them.
void check_params(const std::string& policy, const Signature& signature, const Params& values);

bool has_param(const PolicyVersion& version, const std::string& name);
/// Params of `version` that `values` name with values that do not fit or are not allowed.
std::vector<std::string> unfitting(const PolicyVersion& version, const Params& values);
/// Those of `values` that `version` has as params of their type: an earlier version may lack some of the params, or
/// have them as another type. One that it does not allow stays: it then answers no such call.
Params those_of(const PolicyVersion& version, const Params& values);
/// Where an error of a script happened: as it says itself, else `otherwise`, else the file at `path`.
Source source_of(const std::exception& error, const Source& otherwise, const std::string& path);
/// `what` behind where the function of `version` stands, and its name: "f.lua:2: policy 'f' (version 3)"; and that
/// place.
std::pair<std::string, Source> told_of(const PolicyVersion& version, const std::string& what);
/// Throws that as a PolicyError.
[[noreturn]] void throw_at(const PolicyVersion& version, const std::string& what);

/// Throws LoadError where hosts that call `live` could not call `next` in its place, by what both say of themselves. A
/// param that is not among `lasting` may go.
void check_contract(const PolicyVersion& live, const PolicyVersion& next, const std::set<std::string>& lasting);
/// Throws LoadError where `next` does not allow a value that the host has `set` for all calls.
void check_set_params(const PolicyVersion& next, const Params& set);
/// Throws the LoadError of a new source, its function at `where`, that makes this change.
[[noreturn]] void throw_contract(const Source& where, const PolicyVersion& live, const std::string& change);
/// Runs the script's own tests; throws LoadError naming those that fail.
void check_tests(Script& script);

}  // namespace triage::policy
