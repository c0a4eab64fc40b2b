#include "runtime/policy/core/making.h"

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/policy/core/gates.h"
#include "runtime/policy/core/policy_core.h"
#include "runtime/policy/core/rehearsal.h"
#include "runtime/policy/files/not_now.h"
#include "runtime/policy/files/policy_files.h"

namespace triage::policy {
namespace {

/// In an interpreter of its own: with `tests` its own tests, then the outputs that it declares.
void try_alone(const PolicyCore& policy, const PolicyVersion& version, bool tests) {
  if (!tests && !declares_outputs(version.signature)) return;
  const messages::LogTo log_to(policy.runtime().logger());
  const auto script = policy.runtime().load_script(version.contents, version.path, /*silent=*/true);
  if (tests) check_tests(*script);
  if (const auto untried = check_declared_outputs(*script, policy.runtime().options().limits))
    policy.log().write(LogLevel::info, fmt::format("triage checks its declared outputs only in calls: {}", *untried));
}

/// What a version gets besides inputs of this kind.
std::vector<at::Tensor> values_for(const PolicyVersion& version, const Kind& kind, const Params& params) {
  const auto batch = std::find_if(kind.begin(), kind.end(), [](const auto& shape) { return !shape.sizes.empty(); });
  return with_first_state(version.signature, batch == kind.end() ? 0 : batch->sizes[0],
                          kind.empty() ? c10::Device(c10::kCPU) : kind[0].device,
                          param_tensors(version.signature, params));
}

/// The version that is made, what answers now, and what is known of both. A source that was live before is a way back,
/// and stays open whatever came after it. What the new one gives is compared with what answers where it fails: a live
/// version that is on trial itself says nothing of what hosts are used to.
class Successor {
 public:
  Successor(PolicyCore& policy, std::shared_ptr<PolicyVersion> next, Becomes becomes)
      : policy_(policy), becomes_(becomes), next_(std::move(next)), tried_(next_) {
    VersionLine& line = policy.line();
    const std::lock_guard lock(line.mutex());
    param_names_ = line.param_names();
    live_ = line.now()->version;
    usual_ = live_->trial.on() && line.now()->before ? line.now()->before : live_;
    next_->kinds = live_->kinds_in_use();
    next_->forms.inherit(usual_->forms);
    params_ = line.params();
    const std::optional<bool> known = line.known_sources().proven(next_->contents);
    was_live_ = known.has_value();
    proven_ = known.value_or(false);
  }

  std::shared_ptr<PolicyVersion> make() {
    known_ = known_of(*usual_);
    try {
      if (!proven_) try_out();
    } catch (const Error& error) {
      if (!was_live_) throw;
      known_.untried = next_->kinds;
      known_.reason = error.what();
    }
    compile();
    if (!was_live_) check_contract(*live_, *next_, param_names_.lasting);
    for (const std::string& name : param_names_.former)
      if (!has_param(*next_, name)) next_->former_params.insert(name);
    // A proven one needs no trial; but what hosts are used to is told on, for what may follow it before it is called.
    const std::vector<Kind> untried = known_.untried;
    next_->trial.begin(std::move(known_), proven_ ? Trial::Length{} : trial_length(policy_.runtime().options()));
    if (!was_live_) pass_gates(untried);
    return next_;
  }

 private:
  void try_out() {
    RuntimeCore& runtime = policy_.runtime();
    const messages::LogTo log_to(runtime.logger());
    check_contract(*live_, *next_, param_names_.lasting);
    if (!was_live_) check_set_params(*next_, params_);
    try_alone(policy_, *next_, /*tests=*/true);
    if (next_->kinds.empty()) return;
    before_alone_ = runtime.load_script(usual_->contents, usual_->path, /*silent=*/true);
    next_alone_ = runtime.load_script(next_->contents, next_->path, /*silent=*/true);
    known_ = rehearse(*before_alone_, *next_alone_, *usual_, next_->kinds, params_, runtime.options().limits);
  }

  /// Where the script remembers something that no graph holds (it breaks its graph, or did not come to its end),
  /// running it has changed that: what goes live is loaded again then.
  void compile() {
    const c10::InferenceMode as_in_calls(policy_.use().inference_mode());
    const c10::AutoGradMode grad_mode(policy_.use().grad_mode());
    const uint64_t writes = next_->compiled.script().writes();
    bool ended = true;
    try {
      for (const Kind& kind : next_->kinds) {
        const OnSyntheticValues held(*next_, policy_.runtime().options().limits);
        const std::vector<at::Tensor> values = values_for(*next_, kind, params_);
        if (std::find(known_.untried.begin(), known_.untried.end(), kind) == known_.untried.end()) {
          if (next_->compiled.prepare(kind, values, policy_.use().donated())) ended = false;
        } else if (!was_live_ && !break_ && !next_->compiled.has_breaks() && !breaks_graphs(*live_)) {
          break_ = find_break(*next_, kind, values);
          ended = false;
        }
      }
    } catch (const std::exception&) {
      if (!was_live_) throw;
      ended = false;
    }
    if (auto met = met_break(*next_)) break_ = std::move(met);
    next_->breaks_graphs = break_.has_value();
    if ((ended && !next_->compiled.has_breaks()) || next_->compiled.script().writes() == writes) return;
    auto fresh = policy_.runtime().load_version(next_->contents, next_->path, policy_.random());
    fresh->kinds = next_->kinds;
    fresh->breaks_graphs = next_->breaks_graphs;
    next_ = std::move(fresh);
  }

  static bool breaks_graphs(const PolicyVersion& version) { return version.breaks_graphs || met_break(version); }

  /// Throws GateStop. A candidate has rules of its own about times.
  void pass_gates(const std::vector<Kind>& untried) {
    const RuntimeOptions& options = policy_.runtime().options();
    const auto on_breaks = becomes_ == Becomes::live ? std::optional(options.on_new_graph_breaks) : std::nullopt;
    if (break_ && !breaks_graphs(*live_))
      stop(on_breaks.value_or(ReloadGate::warn), told_of_break(*break_, *live_, on_breaks), break_->where);
    if (becomes_ == Becomes::candidate || options.reload_latency_ratio == 0 || !next_alone_) return;
    const ReloadGate gate = options.on_slow_reload;
    if (const auto slow = find_slow(untried))
      stop(gate, told_of_slow(*slow, *usual_, options.reload_latency_ratio, gate));
  }

  /// Graphs are timed as they were made: what goes live may have been loaded again.
  std::optional<SlowKind> find_slow(const std::vector<Kind>& untried) {
    const RuntimeOptions& options = policy_.runtime().options();
    const c10::InferenceMode as_in_calls(policy_.use().inference_mode());
    const c10::AutoGradMode grad_mode(policy_.use().grad_mode());
    const auto tell = [&](const Kind& kind) {
      policy_.log().write(LogLevel::info,
                          fmt::format("the new source was not timed for inputs of sizes {}: synthetic values "
                                      "do not suit it or the live version, or one of both calls the host",
                                      sizes_text(kind)));
    };
    std::vector<Kind> tried = next_->kinds;
    std::erase_if(tried, [&](const Kind& kind) {
      const bool is_untried = std::find(untried.begin(), untried.end(), kind) != untried.end();
      if (is_untried) tell(kind);
      return is_untried;
    });
    const LatencyGate gate{{*usual_, *before_alone_},
                           {*tried_, *next_alone_},
                           params_,
                           options.limits,
                           options.reload_latency_ratio,
                           tell};
    return gate.find_slow(tried);
  }

  void stop(ReloadGate gate, const std::string& why, Source where = {}) const {
    if (gate == ReloadGate::warn) return policy_.log().write(LogLevel::warn, why);
    if (where.file.empty()) where = next_->defined_at.file.empty() ? Source{next_->path, 0} : next_->defined_at;
    auto shadow = gate == ReloadGate::shadow ? std::optional(GateStop::Shadow{&policy_, next_, live_}) : std::nullopt;
    throw GateStop(why, std::move(where), std::move(shadow));
  }

  PolicyCore& policy_;
  const Becomes becomes_;
  std::shared_ptr<PolicyVersion> next_;
  const std::shared_ptr<PolicyVersion> tried_;         // `next_`, until that is loaded again
  std::unique_ptr<Script> before_alone_, next_alone_;  // of the rehearsal
  std::optional<MetBreak> break_;                      // of the new version
  std::shared_ptr<const PolicyVersion> live_, usual_;
  VersionLine::ParamNames param_names_;
  Params params_;
  Trial::TrialBaseline known_;
  bool was_live_ = false, proven_ = false;
};

}  // namespace

std::shared_ptr<PolicyVersion> load_version(PolicyCore& policy, NewSource from) {
  const RuntimeCore& runtime = policy.runtime();
  if (from.given) {
    PolicyFiles files(from.file, from.given);
    return runtime.load_version({from.source, {}, /*in_folder=*/true}, from.path, policy.random(), &files);
  }
  constexpr int most_tries = 4;
  const Verify& verify = runtime.options().verify;
  for (int tries = 1;; ++tries) {
    PolicyFiles files(from.file, verify, from.known);
    std::shared_ptr<PolicyVersion> version;
    std::exception_ptr failure;
    const Contents bare{from.source, {}, /*in_folder=*/!from.file.empty()};
    try {
      if (from.on_disk) verify_file(verify, from.file, from.source);
      version = runtime.load_version(bare, from.path, policy.random(), from.file.empty() ? nullptr : &files);
    } catch (const std::exception&) {
      failure = std::current_exception();
    }
    if (from.on_read) from.on_read({from.source, files.all(), bare.in_folder});
    if (!files.put_off().empty())
      throw NotNow(fmt::format("policy '{}': {}", from.path, files.put_off()), {from.path, 0});
    std::optional<std::string> now = from.source;
    if (from.on_disk && !files.all().empty()) now = read_source(from.file);
    if (now == from.source && is_unchanged(from.file, files.all())) {
      if (failure) std::rethrow_exception(failure);
      return version;
    }
    if (!now || tries == most_tries)
      throw NotNow(fmt::format("policy '{}': its files changed each time that triage read them ({} times); write them "
                               "beside their places and rename them",
                               from.path, tries),
                   {from.path, 0});
    from.source = std::move(*now);
  }
}

std::shared_ptr<PolicyVersion> load_kept_version(PolicyCore& policy, const Contents& contents) {
  const Verify& verify = policy.runtime().options().verify;
  verify_file(verify, policy.file(), contents.source);
  for (const auto& [name, file] : contents.files)
    if (file.usable()) verify_file(verify, policy.file().parent_path() / name, *file.bytes);
  auto version = policy.runtime().load_version(contents, policy.path(), policy.random());
  try_alone(policy, *version, /*tests=*/false);
  return version;
}

std::shared_ptr<PolicyVersion> make_first(PolicyCore& policy, NewSource source, bool tests) {
  random::Sequence of_trials(policy.runtime().options().seed);
  const random::DrawFrom draws(&of_trials);
  std::shared_ptr<PolicyVersion> version = load_version(policy, std::move(source));
  try_alone(policy, *version, tests);
  return version;
}

std::shared_ptr<PolicyVersion> make_successor(PolicyCore& policy, NewSource source, Becomes becomes) {
  // Trials answer nobody: the numbers of real calls stay as they are.
  random::Sequence of_trials(policy.runtime().options().seed);
  const random::DrawFrom draws(&of_trials);
  const random::DrawAside draws_aside;
  std::shared_ptr<PolicyVersion> next = load_version(policy, std::move(source));
  const Source function = next->defined_at;
  try {
    return Successor(policy, std::move(next), becomes).make();
  } catch (const Error& error) {
    if (!error.source().file.empty() || function.file.empty()) throw;
    throw LoadError(error.what(), function, error.traceback());
  }
}

}  // namespace triage::policy
