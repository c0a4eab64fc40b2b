// How a policy changes: loading, reloading, rolling back. Whatever goes wrong, the live version stays live.
#include "runtime/policy/core.h"

#include "runtime/messages/assert.h"
#include "runtime/messages/debugging/trace_file.h"
#include "runtime/policy/afterwards.h"
#include "runtime/policy/bundles/bundle.h"
#include "runtime/policy/files/source_file.h"
#include "runtime/policy/trials/rehearsal.h"

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace triage::policy {

using Clock = std::chrono::system_clock;

PolicyCore::PolicyCore(std::shared_ptr<RuntimeCore> runtime, std::string path, std::filesystem::path file,
                       BundleCore* bundle)
    : Reloadable("policy", std::move(runtime), std::move(path), std::move(file)),
      bundle_(bundle),
      random_(std::make_shared<random::Sequence>(runtime_->options().seed)),
      state_(runtime_->options().state_keys, runtime_->options().state_age) {}

PolicyCore::~PolicyCore() {
  TRIAGE_ASSERT(Grace().passed(*epochs_));  // a call holds the policy
  delete live_.load(std::memory_order_seq_cst);
}

void PolicyCore::log(LogLevel level, const std::string& text, const std::string& error, int version) const {
  messages::trace([&] {
    return messages::TraceEvent("policy")
        .text("policy", name_.empty() ? path_ : name_)
        .text("path", path_)
        .text("level", to_string(level))
        .number("version", version)
        .text("message", text);
  });
  Reloadable::log(level, text, error, version);
}

void PolicyCore::check_alone(const char* what) const {
  if (!bundle_) return;
  throw InputError(
      fmt::format("policy '{}': {} would change it alone, and it belongs to the bundle '{}', whose policies change "
                  "together; use triage::Bundle for that",
                  name_, what, bundle_->name()));
}

PolicyCore::FileChange PolicyCore::follow_file(bool retry) {
  if (file_.empty() || bundle_) return FileChange::unchanged;
  const Changing changing(*this);
  return look_at_disk(retry);
}

PolicyCore::FileChange PolicyCore::follow_disk(bool retry) {
  if (pinned()) {
    if (see_disk())
      log(LogLevel::info,
          fmt::format("policy '{}': the file '{}' has changed; version {} is pinned, and stays live until `unpin`",
                      name_, path_, version().number));
    return FileChange::unchanged;
  }
  std::optional<std::string> source;
  try {
    source = read_source(file_);
  } catch (const NotNow&) {
    throw;
  } catch (const FileError& error) {
    if (!note_failure(error.what(), error.source())) return FileChange::unchanged;
    see(std::nullopt);
    count_refusal();
    log(LogLevel::error, fmt::format("policy '{}': {}; version {} stays live", name_, error.what(), version().number),
        error.what());
    return FileChange::refused;
  }
  if (!source) {
    if (retry) {  // asked for: it is followed as soon as it is back
      see(std::nullopt);
      afterwards(runtime_->logger(), [&] { choose(nullptr); });
    }
    if (deleted_ && !retry) return FileChange::unchanged;
    const bool is_news = note_failure(fmt::format("the file '{}' was deleted", path_), {path_, 0});
    if (deleted_.exchange(true) && !is_news) return FileChange::unchanged;
    count_refusal();
    log(LogLevel::warn,
        fmt::format("policy '{}': the file '{}' was deleted; version {} stays live", name_, path_, version().number));
    return FileChange::deleted;
  }
  const bool was_deleted = deleted_.exchange(false);
  const FileChange change = take_up(std::move(*source), retry || (was_deleted && refused_), /*of_file=*/true);
  if (!was_deleted || change != FileChange::unchanged) return change;
  // The source that was there before, though another version may be live.
  if (!note_failure_of_choice(path_)) clear_failure();
  return FileChange::restored;
}

Reload PolicyCore::replace(std::string source) {
  const Changing changing(*this);
  switch (take_up(std::move(source), /*retry=*/true, /*of_file=*/false)) {
    case FileChange::swapped:
      return Reload::swapped;
    case FileChange::refused:
      return Reload::refused;
    default:
      return Reload::unchanged;
  }
}

/// `of_file`: the file holds this source now.
PolicyCore::FileChange PolicyCore::take_up(std::string source, bool retry, bool of_file) {
  TRIAGE_ASSERT(changing_.is_held_here());
  bool is_new = false;
  try {
    if (!retry && is_as_seen(source, seen_)) return FileChange::unchanged;
    is_new = true;
    refused_ = false;
    const Contents live = with_live([](const PolicyVersion& version) { return version.contents; });
    if (is_as_seen(source, live)) {
      if (of_file) see(live);
      if (of_file && choice()) afterwards(runtime_->logger(), [&] { choose(nullptr); });
      return clear_failure() ? FileChange::restored : FileChange::unchanged;
    }
    const std::shared_ptr<PolicyVersion> next =
        make_successor({std::move(source), path_, file_, of_file, /*followed=*/of_file});
    go_live(next);
    afterwards(runtime_->logger(), [&] {
      if (pinned())
        choose(next, ChosenBy::pin);
      else if (!is_retried(*next))
        choose(nullptr);
    });
  } catch (const std::exception& error) {
    if (!is_passing(error)) return refuse(error, of_file);
    if (is_new) see(std::nullopt);  // the next look takes it up
    return put_off(error);
  }
  return FileChange::swapped;
}

PolicyCore::FileChange PolicyCore::refuse(const std::exception& error, bool of_file) {
  refused_ = true;
  note_failure(error.what(), source_of(error, {}, path_));
  count_refusal();
  log(LogLevel::error,
      fmt::format("policy '{}': the new source was refused, version {} stays live: {}", name_, version().number,
                  error.what()),
      error.what());
  if (of_file) afterwards(runtime_->logger(), [&] { choose(live_version(), ChosenBy::trial); });
  return FileChange::refused;
}

/// Loads, tries and warms up what is to follow the live version; throws when it may not, with a place in the script.
std::shared_ptr<PolicyVersion> PolicyCore::make_successor(NewSource source) {
  random::Sequence of_trials(
      runtime_->options().seed);  // trials answer nobody: the numbers of real calls stay as they are
  const random::DrawFrom draws(&of_trials);
  const random::DrawAside draws_aside;
  std::shared_ptr<PolicyVersion> next = load_whole(std::move(source));
  const Source function = next->defined_at;
  try {
    make_ready(next);
  } catch (const Error& error) {
    if (!error.source().file.empty() || function.file.empty()) throw;
    throw LoadError(error.what(), function, error.traceback());
  }
  return next;
}

void PolicyCore::check_outputs(Script& script) const {
  if (const auto untried = check_declared_outputs(script, runtime_->options().limits))
    log(LogLevel::info,
        fmt::format("policy '{}': triage checks its declared outputs only in calls: {}", script.name(), *untried));
}

/// A source that was live before is a way back, and stays open whatever came after it. What the new one gives is compared with what
/// answers where it fails: a live version that is on trial itself says nothing of what hosts are used to.
void PolicyCore::make_ready(std::shared_ptr<PolicyVersion>& next) {
  const Contents contents = next->contents;
  const std::string path = next->path;
  Params params;
  bool was_live = false, proven = false;
  std::shared_ptr<const PolicyVersion> live, usual;
  {
    std::lock_guard lock(mutex_);
    const Live& now = *live_.load(std::memory_order_relaxed);
    live = now.version;
    usual = live->trial.on() && now.before ? now.before : live;
    next->kinds = live->kinds_in_use();
    next->forms.inherit(usual->forms);
    params = params_;
    const std::optional<bool> known = known_sources_.proven(contents);
    was_live = known.has_value();
    proven = known.value_or(false);
  }
  Trial::Known known = known_of(*usual);
  const auto try_out = [&] {
    const messages::LogTo log_to(runtime_->logger());
    check_contract(*live, *next, param_names_.lasting);
    const auto load = [&](const Contents& one, const std::string& where) {
      return runtime_->load_script(one, where, /*silent=*/true);
    };
    const std::unique_ptr<Script> tried = load(contents, path);
    check_tests(*tried);
    check_outputs(*tried);
    if (next->kinds.empty()) return;
    known = rehearse(*load(usual->contents, usual->path), *load(contents, path), *usual, next->kinds, params,
                     runtime_->options().limits);
  };
  try {
    if (!proven) try_out();
  } catch (const Error& error) {
    if (!was_live) throw;
    known.untried = next->kinds;
    known.reasons = {error.what()};
  }
  capture_ahead(next, params, known, was_live);
  if (!was_live) check_contract(*live, *next, param_names_.lasting);
  for (const std::string& name : param_names_.former)
    if (std::none_of(next->signature.params.begin(), next->signature.params.end(),
                     [&](const Param& param) { return param.name == name; }))
      next->former_params.insert(name);
  // A proven one needs no trial; but what hosts are used to is told on, for what may follow it before it is called.
  next->trial.begin(std::move(known), proven ? 0 : runtime_->options().trial_calls);
}

/// What a version gets besides inputs of this kind.
static std::vector<at::Tensor> values_for(const PolicyVersion& version, const Kind& kind, const Params& params) {
  const auto batch = std::find_if(kind.begin(), kind.end(), [](const auto& shape) { return !shape.sizes.empty(); });
  return with_first_state(version.signature, batch == kind.end() ? 0 : batch->sizes[0],
                          kind.empty() ? c10::Device(c10::kCPU) : kind[0].device,
                          param_tensors(version.signature, params));
}

/// Where the script remembers something that no graph holds (it breaks its graph, or did not come to its end), running it has changed
/// that: what goes live is loaded again then.
void PolicyCore::capture_ahead(std::shared_ptr<PolicyVersion>& next, const Params& params, const Trial::Known& known,
                               bool was_live) const {
  const c10::InferenceMode as_in_calls(inference_mode_.load(std::memory_order_relaxed));
  const c10::AutoGradMode grad_mode(grad_mode_.load(std::memory_order_relaxed));
  const uint64_t writes = next->compiled.script().writes();
  bool ended = true;
  try {
    for (const Kind& kind : next->kinds) {
      if (std::find(known.untried.begin(), known.untried.end(), kind) != known.untried.end()) continue;
      const OnSyntheticValues held(*next, runtime_->options().limits);
      if (next->compiled.prepare(kind, values_for(*next, kind, params), donated())) ended = false;
    }
  } catch (const std::exception&) {
    if (!was_live) throw;
    ended = false;
  }
  if ((ended && !next->compiled.has_breaks()) || next->compiled.script().writes() == writes) return;
  std::shared_ptr<PolicyVersion> fresh = runtime_->load_version(next->contents, next->path, random_);
  fresh->kinds = next->kinds;
  next = std::move(fresh);
}

void PolicyCore::go_live(const std::shared_ptr<PolicyVersion>& version) {
  TRIAGE_ASSERT(changing_.is_held_here());
  {
    std::lock_guard lock(mutex_);
    commit(stage_new(version));
    note_went_live(*version);
  }
  afterwards(runtime_->logger(), [&] {
    tell_live(*version);
    keep_source();
  });
}

PolicyCore::ParamNames PolicyCore::param_names_with(const PolicyVersion& version) const {
  ParamNames names{{}, param_names_.former};
  for (const Param& param : version.signature.params) {
    if (param_names_.lasting.count(param.name)) names.lasting.insert(param.name);
    names.former.insert(param.name);
  }
  return names;
}

/// With mutex_ held, by who holds changing_, of a version that goes live for the first time.
PolicyCore::Staged PolicyCore::stage_new(const std::shared_ptr<PolicyVersion>& version) {
  if (version->number == 0) give_number(*version);  // a candidate has one
  version->turn = went_live_ + 1;
  Staged staged = stage(version, params_);
  staged.known = known_sources_.to_note(version->contents, /*proven=*/!version->trial.on());
  staged.param_names = param_names_with(*version);
  return staged;
}

void PolicyCore::note_went_live(const PolicyVersion& version) noexcept {
  ++went_live_;
  newest_live_ = version.number;
  last_error_.reset();
}

/// With mutex_ held.
void PolicyCore::give_number(PolicyVersion& version) {
  forget_unused_counts();
  counted_.push_back({next_number_, version.hash, version.counters, version.compile_counts});
  version.number = next_number_++;
}

/// Of what the host has set and this version cannot take.
void PolicyCore::tell_params(const PolicyVersion& version) const {
  std::vector<std::string> names;
  {
    std::lock_guard lock(mutex_);
    names = unfitting(version, params_);
  }
  for (const std::string& name : names)
    log(LogLevel::warn,
        fmt::format("policy '{}': param '{}' has its default in version {}: the value that was set for it does not fit",
                    name_, name, version.number),
        {}, version.number);
}

void PolicyCore::tell_live(const PolicyVersion& version) {
  tell_params(version);
  tell_state(version);
  if (version.number == 1) return;
  std::string trial;
  if (version.trial.on()) trial = ", on trial for its first calls";
  if (!version.trial.tried())
    trial += "; it was not captured in advance, because it failed on synthetic inputs: " + version.trial.reason();
  log(LogLevel::info,
      fmt::format("policy '{}': version {} is live (source {}){}", name_, version.number, version.hash, trial), {},
      version.number);
}

std::shared_ptr<PolicyVersion> PolicyCore::live_version() const {
  const std::lock_guard lock(mutex_);
  return live_.load(std::memory_order_relaxed)->version;
}

/// For a restart that finds the file broken: the source of the live version, once that is known to be good.
void PolicyCore::keep_source() {
  if (bundle_) return bundle_->keep_source();
  if (file_.empty()) return;
  const std::lock_guard keeping(keeping_);  // what is written last is what was live last
  const std::shared_ptr<PolicyVersion> live = live_version();
  if (live->number == kept_number_ || (live->trial.on() && !live->trial.tried())) return;
  keep_contents(live->number, live->contents);
}

void PolicyCore::publish(const std::shared_ptr<PolicyVersion>& version, Params params) {
  commit(stage(version, std::move(params)));
}

/// Makes all that belongs to the new state: where that throws, nothing has changed.
PolicyCore::Staged PolicyCore::stage(const std::shared_ptr<PolicyVersion>& version, Params params) {
  const Live* previous = live_.load(std::memory_order_relaxed);
  auto retired = std::make_shared<Retired>();
  Versions kept = versions_;
  const auto by_number = [](const auto& a, const auto& b) { return a->number < b->number; };
  if (std::find(kept.begin(), kept.end(), version) == kept.end())
    kept.insert(std::upper_bound(kept.begin(), kept.end(), version, by_number), version);
  for (auto other = kept.begin(); kept.size() > std::max<size_t>(1, runtime_->options().keep_versions);) {
    if (*other == version) {
      ++other;
      continue;
    }
    retired->versions.push_back(std::move(*other));
    other = kept.erase(other);
  }
  auto next = std::make_unique<Live>();
  next->version = version;
  next->params = param_tensors(version->signature, params);
  next->last_good = find_last_good(*version, kept, previous);
  if (next->last_good) next->last_good_params = param_tensors(next->last_good->signature, params);
  next->before = find_stand_in(*version, kept, previous);
  if (next->before) next->before_params = param_tensors(next->before->signature, params);
  if (candidate_) next->beside = make_beside(version, params, previous);
  for (const auto& one : {next->version, next->last_good, next->before})
    next->has_state = next->has_state || (one && !one->signature.state.empty());

  TRIAGE_ASSERT(version->number > 0 && version->number < next_number_ && next->before != version);
  TRIAGE_ASSERT(next->params.size() == version->signature.params.size());
  TRIAGE_ASSERT(!next->last_good || next->last_good->turn < version->turn);
  TRIAGE_ASSERT(std::is_sorted(kept.begin(), kept.end(), by_number));
  TRIAGE_ASSERT(std::find(kept.begin(), kept.end(), version) != kept.end());

  Reclaimer::Garbage garbage = Reclaimer::garbage(epochs_, retired);
  return {std::move(next), std::move(kept), std::move(params), std::move(retired), std::move(garbage), {}, {}};
}

void PolicyCore::commit(Staged staged) noexcept {
  const Live* previous = live_.load(std::memory_order_relaxed);
  PolicyVersion& version = *staged.next->version;
  if (!previous || previous->version.get() != &version) version.since = Clock::now();
  versions_.swap(staged.kept);
  params_.swap(staged.params);
  known_sources_.note(std::move(staged.known));
  if (staged.param_names) param_names_ = std::move(*staged.param_names);
  staged.retired->live.reset(live_.exchange(staged.next.release(), std::memory_order_seq_cst));
  if (staged.retired->live) runtime_->reclaimer().retire(std::move(staged.garbage));
}

std::shared_ptr<PolicyVersion> PolicyCore::find_last_good(const PolicyVersion& version, const Versions& kept,
                                                          const Live* previous) const {
  const auto fits = [&](const std::shared_ptr<PolicyVersion>& other) {
    return other && other->turn < version.turn && other->has_run.load(std::memory_order_relaxed) &&
           other->can_stand_in();
  };
  std::shared_ptr<PolicyVersion> latest;
  for (const auto& other : kept)
    if (fits(other) && (!latest || other->turn > latest->turn)) latest = other;
  if (latest) return latest;
  return previous && fits(previous->last_good) ? previous->last_good : nullptr;
}

/// What answers where `version` fails, or changes the form of its answers. After its trial only what is kept anyway.
std::shared_ptr<PolicyVersion> PolicyCore::find_stand_in(const PolicyVersion& version, const Versions& kept,
                                                         const Live* previous) const {
  const bool on_trial = version.trial.on();
  if (!on_trial && runtime_->options().failures_to_revert == 0) return nullptr;
  const auto fits = [&](const std::shared_ptr<PolicyVersion>& other) {
    return other && other.get() != &version && other->can_stand_in() && (on_trial || other->turn < version.turn);
  };
  const auto is_kept = [&](const auto& other) { return std::find(kept.begin(), kept.end(), other) != kept.end(); };
  if (previous)
    for (const auto& other : {previous->version, previous->before})
      if (fits(other) && (on_trial || is_kept(other))) return other;
  std::shared_ptr<PolicyVersion> latest;
  for (const auto& other : kept)
    if (other->turn < version.turn && fits(other) && (!latest || other->turn > latest->turn)) latest = other;
  return latest;
}

std::shared_ptr<PolicyVersion> PolicyCore::find_kept(int number) const {
  std::vector<int> kept;
  for (const auto& version : versions_) {
    if (version->number == number) return version;
    kept.push_back(version->number);
  }
  if (candidate_ && candidate_->version->number == number)
    throw InputError(fmt::format("policy '{}': version {} is a candidate; make it live with promote", name_, number));
  throw InputError(
      fmt::format("policy '{}' has no version {} to go back to; it keeps {}", name_, number, fmt::join(kept, ", ")));
}

void PolicyCore::rollback(int number, bool pin) {
  const Changing changing(*this);
  if (!file_.empty() && pinned()) see_disk();  // what was saved meanwhile is not followed either
  std::shared_ptr<PolicyVersion> version;
  {
    std::lock_guard lock(mutex_);
    version = find_kept(number);
    if (version->taken_back.exchange(false)) version->trial.begin_again(runtime_->options().trial_calls);
    publish(version, params_);
    pinned_ = pin;
  }
  afterwards(runtime_->logger(), [&] {
    choose(version, pin ? ChosenBy::pin : ChosenBy::rollback);
    keep_source();
    log(LogLevel::info,
        fmt::format("policy '{}': version {} is live again{}", name_, number, pin ? ", and pinned" : ""), {}, number);
    tell_params(*version);
    tell_state(*version);
  });
}

void PolicyCore::unpin() {
  const Changing changing(*this);
  {
    std::lock_guard lock(mutex_);
    pinned_ = false;
  }
  afterwards(runtime_->logger(), [&] { choose(nullptr); });
}

void PolicyCore::set_param(const std::string& name, ParamValue value) {
  std::lock_guard lock(mutex_);
  const Live& live = *live_.load(std::memory_order_relaxed);
  const bool of_candidate =
      live.beside && !has_param(*live.version, name) && has_param(*live.beside->as_live.version, name);
  const Live& taking = of_candidate ? live.beside->as_live : live;
  override_params(*taking.version, taking.params, {{name, value}});  // throws where it does not fit
  Params params = params_;
  const auto same = std::find_if(params.begin(), params.end(), [&](const auto& param) { return param.first == name; });
  if (same == params.end()) {
    params.emplace_back(name, std::move(value));
  } else {
    same->second = std::move(value);
  }
  live.version->forms.forget();  // the host wants something else
  if (live.beside) live.beside->as_live.version->forms.forget();
  publish(live.version, std::move(params));
}

int PolicyCore::newest_number() const {
  std::lock_guard lock(mutex_);
  return newest_live_;
}

VersionInfo PolicyCore::version() const {
  std::lock_guard lock(mutex_);
  VersionInfo info = live_.load(std::memory_order_relaxed)->version->info();
  info.path = path_;
  info.live = true;
  info.pinned = pinned_;
  info.last_error = last_error_;
  return info;
}

std::vector<VersionInfo> PolicyCore::versions() const {
  std::lock_guard lock(mutex_);
  const PolicyVersion* live = live_.load(std::memory_order_relaxed)->version.get();
  std::vector<VersionInfo> infos;
  for (const auto& version : versions_) {
    infos.push_back(version->info());
    infos.back().path = path_;
    infos.back().live = version.get() == live;
    infos.back().pinned = infos.back().live && pinned_;
  }
  if (candidate_) {
    VersionInfo info = candidate_->version->info();
    info.candidate = true;
    const auto by_number = [](const VersionInfo& a, const VersionInfo& b) { return a.number < b.number; };
    infos.insert(std::upper_bound(infos.begin(), infos.end(), info, by_number), info);
  }
  return infos;
}

}  // namespace triage::policy
