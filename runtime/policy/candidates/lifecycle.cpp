// How a candidate begins and ends: loaded and tried as a reload is, promoted, reverted, or ended by the host.
#include <fmt/format.h>
#include <triage/error.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "runtime/messages/assert.h"
#include "runtime/messages/boundary.h"
#include "runtime/policy/afterwards.h"
#include "runtime/policy/core.h"
#include "runtime/policy/files/source_file.h"

namespace triage::policy {
namespace {

using WallClock = std::chrono::system_clock;

std::string percent(double share) { return fmt::format("{:g} %", 100 * share); }

std::string task_of(const Candidate& candidate) {
  if (candidate.kind == CandidateKind::shadow)
    return fmt::format("it runs in the shadow of {} of the calls", percent(candidate.share));
  return fmt::format("it answers {} of the calls", percent(candidate.share));
}

[[noreturn]] void refuse_second(const std::string& policy, const Candidate& candidate) {
  throw InputError(fmt::format(
      "policy '{}' has a candidate already, version {} (source {}, a {}); a policy has one at a time. End it "
      "with end_candidate, or make it live with promote, and then start the next one",
      policy, candidate.version->number, candidate.version->hash, to_string(candidate.kind)));
}

}  // namespace

/// Null where there is none.
std::shared_ptr<Candidate> PolicyCore::running_candidate() const {
  const std::lock_guard lock(mutex_);
  return candidate_;
}

std::shared_ptr<PolicyVersion> PolicyCore::make_candidate(NewSource source) {
  TRIAGE_ASSERT(changing_.is_held_here());
  if (const auto running = running_candidate()) refuse_second(name_, *running);
  // The files are read without mutex_: calls that count take it, too.
  const std::shared_ptr<const PolicyVersion> live = [&] {
    const std::lock_guard lock(mutex_);
    return live_.load(std::memory_order_relaxed)->version;
  }();
  if (live->contents.source == source.source && is_unchanged(source.file, live->contents.files))
    throw InputError(
        fmt::format("policy '{}': the candidate '{}' has the source of version {}, which is live (source {}); there "
                    "is nothing to try",
                    name_, source.path, live->number, live->hash));
  if (!runtime_->candidate_thread().start())
    throw InputError(
        fmt::format("policy '{}' has outlived its Runtime, and a candidate needs the Runtime's thread; "
                    "start candidates while the Runtime lives",
                    name_));
  const auto note_refusal = [&](const std::exception& error) {
    count_refusal();
    log(LogLevel::error,
        fmt::format("policy '{}': the candidate '{}' was refused: {}", name_, source.path, error.what()), error.what());
  };
  try {
    return make_successor(source);
  } catch (const Error& error) {
    note_refusal(error);
    throw;
  } catch (const std::exception& error) {
    note_refusal(error);
    throw LoadError(error.what(), {source.path, 0});
  }
}

VersionInfo PolicyCore::start_shadow(const std::shared_ptr<PolicyCore>& self, NewSource source,
                                     const ShadowOptions& options) {
  check_options(options);
  const Changing changing(*this);
  return start_candidate(std::make_shared<Candidate>(self, make_candidate(std::move(source)), options));
}

VersionInfo PolicyCore::start_canary(const std::shared_ptr<PolicyCore>& self, NewSource source,
                                     const CanaryOptions& options) {
  check_options(options);
  const Changing changing(*this);
  return start_candidate(std::make_shared<Candidate>(self, make_candidate(std::move(source)), options));
}

VersionInfo PolicyCore::start_candidate(const std::shared_ptr<Candidate>& candidate) {
  PolicyVersion& version = *candidate->version;
  VersionInfo info;
  {
    const std::lock_guard lock(mutex_);
    give_number(version);
    version.since = WallClock::now();
    info = version.info();
    info.candidate = true;
    candidate_ = candidate;
    try {
      publish(live_.load(std::memory_order_relaxed)->version, params_);
    } catch (const std::exception&) {
      candidate_ = nullptr;
      throw;
    }
    ++candidates_;
  }
  afterwards(runtime_->logger(), [&] {
    log(LogLevel::info,
        fmt::format("policy '{}': version {} is a candidate (source {}): {}", name_, version.number, version.hash,
                    task_of(*candidate)),
        {}, version.number);
    tell_params(version);
  });
  return info;
}

/// With mutex_ held. Beside another live version the comparison begins anew, also of the form of what they give.
std::shared_ptr<const PolicyCore::Beside> PolicyCore::make_beside(const std::shared_ptr<PolicyVersion>& live,
                                                                  const Params& params, const Live* previous) {
  PolicyVersion& version = *candidate_->version;
  if (candidate_->version == live || !candidate_->running()) return nullptr;
  const bool goes_on = previous && previous->beside && previous->beside->candidate == candidate_;
  const bool same = goes_on && previous->version == live;
  auto beside = std::make_shared<Beside>();
  beside->candidate = candidate_;
  beside->comparison = same ? previous->beside->comparison : std::make_shared<Comparison>(live->number, live->hash);
  beside->as_live.version = candidate_->version;
  beside->as_live.params = param_tensors(version.signature, params);
  beside->as_live.before = live;
  beside->as_live.before_params = param_tensors(live->signature, params);
  comparison_ = beside->comparison;
  if (goes_on && !same) {
    ++candidate_->restarts;
    version.trial.begin({}, runtime_->options().trial_calls);
  }
  return beside;
}

std::optional<CandidateReport> PolicyCore::candidate() const {
  std::shared_ptr<const Candidate> candidate;
  std::shared_ptr<const Comparison> comparison;
  int pinned = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!candidate_) return last_report_;
    candidate = candidate_;
    comparison = comparison_;
    if (pinned_) pinned = live_.load(std::memory_order_relaxed)->version->number;
  }
  CandidateReport report = report_of(*candidate, *comparison, name_, {});
  report.state = CandidateState::running;  // where its end is decided, that has not happened yet
  if (report.kind == CandidateKind::canary && !runtime_->options().count_flags)
    report.notes.emplace_back("flagged_ratio is not checked: RuntimeOptions::count_flags is off");
  if (pinned > 0)
    report.notes.push_back(fmt::format("version {} is pinned: the candidate is not promoted before unpin", pinned));
  return report;
}

/// What is called in place of the live version is compared with it by contract once more: another one may be live by now.
void PolicyCore::promote(const std::shared_ptr<Candidate>& candidate, const std::string& reason) {
  TRIAGE_ASSERT(changing_.is_held_here());
  std::shared_ptr<const PolicyVersion> live;
  {
    const std::lock_guard lock(mutex_);
    live = live_.load(std::memory_order_relaxed)->version;
    if (pinned_)
      throw InputError(
          fmt::format("policy '{}': version {} is pinned, so that no other goes live; call unpin before "
                      "promote",
                      name_, live->number));
  }
  check_contract(*live, *candidate->version, param_names_.lasting);
  if (!candidate->decide(CandidateState::promoted))
    throw InputError(fmt::format("policy '{}': the candidate, version {}, was {} meanwhile", name_,
                                 candidate->version->number, to_string(candidate->state())));
  try {
    go_live(candidate->version);
  } catch (const std::exception&) {
    candidate->resume();
    throw;
  }
  // After a restart, too, until the file changes.
  afterwards(runtime_->logger(), [&] { choose(candidate->version); });
  afterwards(runtime_->logger(), [&] {
    try {
      finish_candidate(candidate, reason, {});
    } catch (const std::exception&) {
      forget_promoted();
      throw;
    }
    log(LogLevel::info,
        fmt::format("policy '{}': the candidate, version {}, was promoted: {}", name_, candidate->version->number,
                    reason),
        {}, candidate->version->number);
  });
}

/// It is live, and there is no memory for its report.
void PolicyCore::forget_promoted() noexcept {
  const std::lock_guard lock(mutex_);
  candidate_ = nullptr;
  comparison_ = nullptr;
  last_report_.reset();
  ++promoted_;
}

void PolicyCore::promote_candidate() {
  const Changing changing(*this);
  const std::shared_ptr<Candidate> candidate = running_candidate();
  if (!candidate)
    throw InputError(fmt::format("policy '{}' has no candidate to promote; start one with shadow or canary", name_));
  promote(candidate, "by the host");
}

void PolicyCore::promote_by_rule(const std::shared_ptr<Candidate>& candidate) {
  const Changing changing(*this);
  try {
    promote(candidate, fmt::format("it answered {} calls, and no rule was broken", candidate->canary.promote_after));
  } catch (const InputError&) {  // a version is pinned, or it ended: the report says so
  } catch (const Error& error) {
    tell_reverted(candidate, error.what(), error.source());
  }
}

void PolicyCore::revert_candidate(const Beside& beside, const std::string& reason, const Source& source) {
  tell_reverted(beside.candidate, reason, source);
}

void PolicyCore::tell_reverted(const std::shared_ptr<Candidate>& candidate, const std::string& reason,
                               const Source& source) {
  const auto report = end_as(CandidateState::reverted, candidate, reason, source);
  if (!report) return;
  afterwards(runtime_->logger(), [&] {
    log(LogLevel::error,
        fmt::format("policy '{}': the candidate, version {}, was reverted, version {} answers all calls: {}", name_,
                    report->version, version().number, reason),
        reason, report->version);
  });
}

/// Nothing where it has come to its end already. Where this throws, it goes on.
std::optional<CandidateReport> PolicyCore::end_as(CandidateState end, const std::shared_ptr<Candidate>& candidate,
                                                  const std::string& reason, const Source& source) {
  if (!candidate->decide(end)) return std::nullopt;
  try {
    return finish_candidate(candidate, reason, source);
  } catch (const std::exception&) {
    candidate->resume();
    throw;
  }
}

/// For whoever decided its end. Where this throws, nothing has changed.
CandidateReport PolicyCore::finish_candidate(const std::shared_ptr<Candidate>& candidate, const std::string& reason,
                                             const Source& source) {
  constexpr size_t most_ends = 16;  // that no Watch asked for
  const std::shared_ptr<const Comparison> comparison = [&] {
    const std::lock_guard lock(mutex_);
    return comparison_;
  }();
  CandidateReport report = report_of(*candidate, *comparison, name_, reason);
  std::optional<CandidateReport> last_report = report;
  {
    const std::lock_guard lock(mutex_);
    const auto live = live_.load(std::memory_order_relaxed)->version;
    Staged staged = stage(live, params_);  // without the candidate, which runs no more
    const bool is_told = report.state != CandidateState::ended && !file_.empty() && candidate_ends_.size() < most_ends;
    if (is_told) candidate_ends_.push_back({report.state, live->number, reason, source});
    try {
      post_end(candidate, report);
    } catch (const std::exception&) {
      if (is_told) candidate_ends_.pop_back();
      throw;
    }
    last_report_.swap(last_report);
    candidate_ = nullptr;
    comparison_ = nullptr;
    promoted_ += report.state == CandidateState::promoted;
    candidates_reverted_ += report.state == CandidateState::reverted;
    commit(std::move(staged));
  }
  afterwards(runtime_->logger(), [&] { runtime_->wake_watches(); });
  return report;
}

/// With mutex_ held: what the host does in `on_end` waits for it.
void PolicyCore::post_end(const std::shared_ptr<Candidate>& candidate, const CandidateReport& report) {
  if (!candidate->canary.on_end) return;
  runtime_->candidate_thread().post([report, candidate, runtime = runtime_, name = name_] {
    try {
      candidate->canary.on_end(report);
    } catch (const std::exception& error) {
      runtime->logger().write(LogLevel::error, fmt::format("policy '{}': on_end threw: {}", name, error.what()),
                              {{"policy", name}});
    } catch (...) {
      runtime->logger().write(LogLevel::error,
                              fmt::format("policy '{}': on_end threw something that is not a std::exception", name),
                              {{"policy", name}});
    }
  });
}

CandidateReport PolicyCore::end_candidate() {
  const std::shared_ptr<Candidate> candidate = running_candidate();
  auto report = candidate ? end_as(CandidateState::ended, candidate, "by the host", {}) : std::nullopt;
  if (!report)
    throw InputError(
        fmt::format("policy '{}' has no candidate to end; candidate() has the report of the last one", name_));
  afterwards(runtime_->logger(), [&] {
    log(LogLevel::info,
        fmt::format("policy '{}': the candidate, version {}, was ended by the host", name_, report->version), {},
        report->version);
  });
  return std::move(*report);
}

void PolicyCore::forget_candidate() noexcept {
  try {
    const std::shared_ptr<Candidate> candidate = running_candidate();
    if (candidate && candidate->decide(CandidateState::ended)) finish_candidate(candidate, "the Runtime is gone", {});
  } catch (const std::exception&) {  // no memory for its report; it runs no more
  }
}

std::vector<PolicyCore::CandidateEnd> PolicyCore::take_candidate_ends() {
  const std::lock_guard lock(mutex_);
  return std::exchange(candidate_ends_, {});
}

}  // namespace triage::policy

namespace triage {

using messages::errors_only;

namespace {

policy::NewSource source_of_file(const std::string& policy, const std::filesystem::path& path) {
  const std::filesystem::path file = std::filesystem::absolute(path).lexically_normal();
  auto source = policy::read_source(file);
  if (!source)
    throw FileError(
        fmt::format("policy '{}': cannot load the candidate '{}': there is no such file", policy, path.string()),
        {path.string(), 0});
  return {std::move(*source), path.string(), file, /*on_disk=*/true};
}

/// It may read what the policy's own source may.
policy::NewSource source_of_text(const policy::PolicyCore& core, std::string_view source) {
  return {std::string(source), core.path(), core.file()};
}

}  // namespace

VersionInfo Policy::shadow(const std::filesystem::path& path, const ShadowOptions& options) const {
  return errors_only([&] { return core().start_shadow(core_, source_of_file(name(), path), options); });
}

VersionInfo Policy::shadow_source(std::string_view source, const ShadowOptions& options) const {
  return errors_only([&] { return core().start_shadow(core_, source_of_text(core(), source), options); });
}

VersionInfo Policy::canary(const std::filesystem::path& path, const CanaryOptions& options) const {
  return errors_only([&] {
    core().check_alone("canary");
    return core().start_canary(core_, source_of_file(name(), path), options);
  });
}

VersionInfo Policy::canary_source(std::string_view source, const CanaryOptions& options) const {
  return errors_only([&] {
    core().check_alone("canary");
    return core().start_canary(core_, source_of_text(core(), source), options);
  });
}

std::optional<CandidateReport> Policy::candidate() const {
  return errors_only([&] { return core().candidate(); });
}

void Policy::promote() const {
  errors_only([&] {
    core().check_alone("promote");
    core().promote_candidate();
  });
}

CandidateReport Policy::end_candidate() const {
  return errors_only([&] { return core().end_candidate(); });
}

}  // namespace triage
