#include "runtime/policy/releases/releases.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <new>

#include "runtime/policy/afterwards.h"

namespace triage::policy {

std::string shown(const Release& release) {
  if (release.label.empty()) return fmt::format("version {}", release.number);
  return fmt::format("version {} (\"{}\")", release.number, release.label);
}

std::string identity(const Release& release) {
  if (release.label.empty()) return "source " + release.parts.begin()->second->hash;
  return fmt::format("\"{}\"", release.label);
}

/// The end of the last handle. It goes to the reclaimer; once its Runtime is gone, or where memory is short, it is
/// destroyed here. In a forked child it stays: a thread of the parent may have been at work with it.
static void release(Releases* releases) noexcept {
  if (releases->runtime().reclaimer().is_of_another_process()) return;
  const std::shared_ptr<RuntimeCore> runtime = releases->runtime().shared_from_this();  // outlives what follows
  std::unique_ptr<Releases> owned(releases);
  try {
    std::shared_ptr<void> garbage = std::move(owned);
    runtime->reclaimer().discard(garbage);
  } catch (const std::bad_alloc&) {
  }
}

Releases::Releases(std::shared_ptr<RuntimeCore> runtime, const char* what, std::string path, std::filesystem::path file)
    : runtime_(std::move(runtime)),
      file_(std::move(file)),
      log_(runtime_, what, std::move(path)),
      reloads_(*this),
      restart_(*this) {}

std::shared_ptr<Releases> Releases::open(std::shared_ptr<RuntimeCore> runtime, const char* what, std::string path,
                                         std::filesystem::path file, const MakeParts& make_parts) {
  std::unique_ptr<Releases> loaded(new Releases(std::move(runtime), what, std::move(path), std::move(file)));
  ReleaseParts parts = make_parts(*loaded);
  loaded->members_ = std::move(parts.members);
  loaded->origin_ = std::move(parts.origin);
  loaded->history_ = std::move(parts.history);
  loaded->reloads_.load_first();
  std::shared_ptr<Releases> shared(loaded.release(), release);
  RuntimeCore& core = shared->runtime();
  core.add(shared);
  core.wake_watchers();  // the file may have changed after it was read and before a Watch knew of the policy
  return shared;
}

std::map<std::string, std::shared_ptr<PolicyCore>> Releases::policies() {
  std::map<std::string, std::shared_ptr<PolicyCore>> handles;
  const std::lock_guard lock(mutex_);
  for (const auto& [name, member] : members_)
    handles.emplace(name, std::shared_ptr<PolicyCore>(shared_from_this(), member.get()));
  return handles;
}

PolicyCore* Releases::find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = members_.find(name);
  return found == members_.end() ? nullptr : found->second.get();
}

/// Makes all that the policies need, with mutex_ and theirs: where that throws, nothing has changed.
Releases::StagedExchange Releases::stage(const Release& release, const Members& added) {
  const auto member_of = [&](const std::string& name) -> PolicyCore& {
    const auto known = members_.find(name);
    return known != members_.end() ? *known->second : *added.at(name);
  };
  for (const auto& [name, part] : release.parts) member_of(name).line().check_params(*part);
  StagedExchange changes;
  for (const auto& [name, part] : release.parts) {
    PolicyCore& member = member_of(name);
    if (part->number == 0) member.give_number(*part);
    changes.staged.emplace_back(&member, member.line().stage(part));
    const Lineup* const now = member.line().now();
    if (now && now->version == part) continue;
    PolicyEvent event{.event = "live", .version = part->number, .hash = part->hash};
    if (now) {
      event.previous_version = now->version->number;
      event.previous_hash = now->version->hash;
      event.previous_totals = now->version->counters->totals();
    }
    const bool first_time = changes.staged.back().second.param_names.has_value();
    changes.switches.push_back({&member, part, first_time, std::move(event)});
  }
  return changes;
}

/// Between the first and the last policy there is nothing but the exchange of pointers.
Switches Releases::exchange(StagedExchange changes, const std::shared_ptr<Release>& release) noexcept {
  for (auto& [member, staged] : changes.staged) member->line().commit(std::move(staged));
  if (live_ != release) release->since = std::chrono::system_clock::now();
  history_->note_live(release);
  live_ = release;
  return std::move(changes.switches);
}

/// With mutex_ and those of the policies. From the exchange on nothing fails.
Switches Releases::put_live(Prepared& next, const std::function<std::shared_ptr<const VersionChoice>()>& choose) {
  StagedExchange changes = stage(*next.release, next.added);
  history_->add(next.release);
  std::shared_ptr<const VersionChoice> choice = choose();
  Switches switches = exchange(std::move(changes), next.release);
  restart_.set(std::move(choice));
  members_.merge(next.added);
  forget_failures();
  return switches;
}

void Releases::begin_with(Prepared& first, std::optional<VersionChoice> chosen, bool is_kept) {
  log_.set_name(first.name);
  Switches switches;
  {
    const std::lock_guard lock(mutex_);
    const MembersLock members(members_);
    pinned_ = chosen && chosen->by == ChosenBy::pin;
    switches =
        put_live(first, [&] { return chosen ? std::make_shared<const VersionChoice>(std::move(*chosen)) : nullptr; });
  }
  afterwards(runtime_->logger(),
             [&] { report_live(*first.release, std::move(switches), is_kept ? "restart" : "load"); });
}

bool Releases::go_live(Prepared& next, const std::shared_ptr<Release>& beside, std::optional<uint64_t> decisions,
                       const char* by) {
  Switches switches;
  {
    const std::lock_guard lock(mutex_);
    const MembersLock members(members_);
    if (decisions && *decisions != decisions_) throw Error(last_decision_);  // which the reload finds to be overtaken
    if (live_->parts != beside->parts) return false;
    switches = put_live(next, [&] { return restart_.after_reload(*next.release, pinned_); });
  }
  afterwards(runtime_->logger(), [&] { restart_.keep_choice(); });
  afterwards(runtime_->logger(), [&] { report_live(*next.release, std::move(switches), by); });
  return true;
}

/// The one place where the decision log hears that versions went live.
static void note_live(const Releases& releases, const Release& release, Switches switches, const char* by,
                      const std::string& reason = {}) {
  for (auto& [policy, version, first_time, event] : switches) {
    if (releases.is_bundle()) {
      event.bundle = releases.log().name();
      event.bundle_version = release.number;
    }
    event.by = by;
    event.reason = reason;
    event.kept = policy->log().keep_source(*version);
    policy->log().note(std::move(event));
  }
}

void note_event(const Releases& releases, PolicyEvent event) noexcept {
  afterwards(releases.runtime().logger(), [&] {
    if (!releases.log().notes()) return;
    const std::shared_ptr<Release> now = releases.live();
    if (releases.is_bundle()) {
      event.bundle_version = now->number;
    } else {
      event.version = now->number;
      event.hash = now->parts.begin()->second->hash;
    }
    releases.log().note(std::move(event));
  });
}

void Releases::report_live(const Release& release, Switches switches, const char* by) {
  for (const Switch& one : switches)
    if (one.first_time) one.policy->report_live(*one.version);
  note_live(*this, release, std::move(switches), by);
  restart_.keep_contents();
  if (is_bundle() && release.number > 1)
    log_.write(LogLevel::info, fmt::format("{} is live", shown(release)), {}, release.number);
}

/// What of the params and the state does not fit this release, which is live again. What its policies noted before is
/// told by nobody.
static void report_misfits(const Releases& releases, const Release& release) {
  for (const auto& [name, part] : release.parts)
    if (PolicyCore* const member = releases.find(name)) {
      member->report_params(*part);
      member->state().tell(*part);
    }
}

/// With mutex_. A reload that is running has been overtaken: it stops at its next check.
void Releases::decide(std::string what) noexcept {
  last_decision_.swap(what);
  decisions_.fetch_add(1, std::memory_order_acq_rel);
  reloads_.cancel();
}

void Releases::rollback(int number, bool pin) {
  // What was saved meanwhile is not followed either.
  const bool looks = !file_.empty() && (pinned() || reloads_.is_running());
  auto disk = looks ? reloads_.disk_now() : std::nullopt;
  std::shared_ptr<Release> to;
  Switches switches;
  {
    const std::lock_guard lock(mutex_);
    const MembersLock members(members_);
    to = history_->find(number);
    if (!to) {
      const auto candidate = is_bundle() ? nullptr : members_.begin()->second->line().candidate();
      if (candidate && candidate->version->number == number)
        throw InputError(fmt::format("{}: version {} is a candidate; make it live with promote", log_.title(), number));
      std::vector<int> kept;
      for (const auto& release : history_->kept()) kept.push_back(release->number);
      throw InputError(
          fmt::format("{} has no version {} to go back to; it keeps {}", log_.title(), number, fmt::join(kept, ", ")));
    }
    for (const auto& [name, part] : to->parts)
      if (part->taken_back.exchange(false)) part->trial.begin_again(trial_length(runtime_->options()));
    StagedExchange changes = stage(*to, {});
    std::string what = fmt::format("version {} was {}", number, pin ? "pinned" : "rolled back to");
    if (looks) reloads_.observe_locked(std::move(disk));
    const bool is_whole = !origin_->is_incomplete();
    origin_->forget_incomplete();
    reloads_.forget_deleted();
    auto choice = restart_.make(*to, pin ? ChosenBy::pin : ChosenBy::rollback);
    decide(std::move(what));
    switches = exchange(std::move(changes), to);
    restart_.set(std::move(choice));
    pinned_ = pin;
    const auto& seen = reloads_.observed_locked();
    if (is_whole && !reloads_.is_deleted() && seen && origin_->holds(*seen, *to)) forget_failures();
  }
  afterwards(runtime_->logger(), [&] {
    restart_.keep_choice();
    restart_.keep_contents();
    note_live(*this, *to, std::move(switches), pin ? "pin" : "rollback");
    if (pin) note_event(*this, {.event = "pinned"});
    log_.write(LogLevel::info, fmt::format("{} is live again{}", shown(*to), pin ? ", and pinned" : ""), {}, number);
    report_misfits(*this, *to);
  });
}

/// What is kept for a restart changes when it is known what is live without the pin: were it forgotten first, a process
/// that ends meanwhile would leave a source that is to be refused, and that a start takes as it is.
Reloads::Change Releases::unpin() {
  uint64_t decisions = 0;
  const Reloads::Change change = reloads_.follow(/*retry=*/true, [&] {
    bool was_pinned = false;
    {
      const std::lock_guard lock(mutex_);
      was_pinned = std::exchange(pinned_, false);
      decisions = decisions_;
    }
    if (was_pinned) note_event(*this, {.event = "unpinned"});
  });
  afterwards(runtime_->logger(), [&] { restart_.forget_choice_of_host(decisions); });
  return change;
}

void Releases::promote(PolicyCore& policy) {
  const std::shared_ptr<Candidate> candidate = policy.candidates().running();
  if (!candidate)
    throw InputError(
        fmt::format("policy '{}' has no candidate to promote; start one with shadow or canary", policy.name()));
  promote(policy, candidate, "by the host", /*by_host=*/true);
}

void Releases::promote_by_rule(PolicyCore& policy, const std::shared_ptr<Candidate>& candidate) {
  try {
    const uint64_t calls = candidate->canary.promote_after;
    promote(policy, candidate, fmt::format("it answered {} calls, and no rule was broken", calls), /*by_host=*/false);
  } catch (const InputError&) {  // a version is pinned, or it ended: the report says so
  } catch (const Error& error) {
    policy.candidates().revert(candidate, error.what(), error.source());
  }
}

/// What is called in place of the live version is compared with it by contract once more: another one may be live by
/// now.
void Releases::promote(PolicyCore& policy, const std::shared_ptr<Candidate>& candidate, const std::string& reason,
                       bool by_host) {
  Prepared next{log_.name(), release_of(candidate->version)};
  const bool looks = by_host && reloads_.is_running();
  auto disk = looks ? reloads_.disk_now() : std::nullopt;
  std::string what = fmt::format("version {} was promoted", candidate->version->number);
  Switches switches;
  {
    const std::lock_guard lock(mutex_);
    const MembersLock members(members_);
    if (pinned_)
      throw InputError(
          fmt::format("policy '{}': version {} is pinned, so that no other goes live; call unpin before "
                      "promote",
                      policy.name(), live_->number));
    check_contract(*policy.line().now()->version, *candidate->version, policy.line().param_names().lasting);
    if (!candidate->decide(CandidateState::promoted))
      throw InputError(fmt::format("policy '{}': the candidate, version {}, was {} meanwhile", policy.name(),
                                   candidate->version->number, to_string(candidate->state())));
    try {
      if (looks) reloads_.observe_locked(std::move(disk));
      reloads_.forget_deleted();
      policy.state().take_over(*candidate);
      // After a restart, too, until the file changes.
      switches = put_live(next, [&] { return restart_.make(*next.release, ChosenBy::rollback); });
    } catch (const std::exception&) {
      candidate->resume();
      throw;
    }
    if (by_host) decide(std::move(what));
  }
  afterwards(runtime_->logger(), [&] { restart_.keep_choice(); });
  afterwards(runtime_->logger(), [&] { policy.candidates().finish_promoted(candidate, reason); });
  afterwards(runtime_->logger(), [&] { report_live(*next.release, std::move(switches), "promotion"); });
}

void Releases::go_back(PolicyCore& policy, const Lineup& asked, const std::exception& error) {
  PolicyVersion& failed = *asked.version;
  const LoadFailure failure{error.what(), source_of(error, failed.defined_at, policy.path()),
                            std::chrono::system_clock::now()};
  std::shared_ptr<Release> from, to;
  Switches switches;
  {
    const std::lock_guard lock(mutex_);
    const MembersLock members(members_);
    const Lineup& now = *policy.line().now();
    if (now.version != asked.version) {  // another call, or a reload, was first
      failed.failures.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    if (!pinned_) to = history_->find_before(asked, now);
    if (to) {
      from = live_;
      auto choice = restart_.make(*to, ChosenBy::failure, failure.message);
      Reversal reversal{to->number, failure};
      std::vector<std::optional<LoadFailure>> last_errors(members_.size() + 1, failure);
      switches = exchange(take_back(failed, [&] { return stage(*to, {}); }), to);
      failed.failures.fetch_add(1, std::memory_order_relaxed);
      policy.count_reversal(failed);
      restart_.set(std::move(choice));
      reversal_ = std::move(reversal);
      last_error_.swap(last_errors.back());
      auto last_error = last_errors.begin();
      for (const auto& [name, member] : members_) member->last_error.swap(*last_error++);
    }
  }
  if (!to) return policy.report_failure(failed, error);
  afterwards(runtime_->logger(), [&] {
    restart_.keep_contents();
    restart_.keep_choice();
    note_live(*this, *to, std::move(switches), "failures", failure.message);
    const std::string where = is_bundle() ? fmt::format(" in policy '{}'", policy.name()) : "";
    log_.write(LogLevel::error,
               fmt::format("{} failed{}, {} is live again: {}", shown(*from), where, shown(*to), failure.message),
               failure.message, from->number);
    report_misfits(*this, *to);
    runtime_->wake_watchers();
  });
}

/// Calls count only while the version is live: one that was taken back stays on trial for the calls that are still
/// inside it.
void Releases::pass_trial(PolicyCore& policy, const Lineup& asked, at::ArrayRef<at::Tensor> inputs) {
  if (asked.version->trial.only_waits(Trial::Clock::now())) return;
  bool is_settled = false;
  {
    const std::lock_guard lock(mutex_);
    const MembersLock members(members_);
    VersionLine& line = policy.line();
    if (line.now()->version != asked.version) return;
    const Trial::Progress progress = asked.version->trial.pass(inputs);
    if (progress == Trial::Progress::going_on) return;
    if (progress == Trial::Progress::over) {
      VersionLine::Staged staged = line.stage(asked.version);
      staged.known = line.known_sources().to_note(asked.version->contents, /*proven=*/true);
      line.commit(std::move(staged));
      is_settled = restart_.settle(*live_);
    }
  }
  policy.state().drop_unfitting();
  restart_.keep_contents();
  if (is_settled) restart_.keep_choice();
}

std::optional<Releases::Reversal> Releases::take_reversal() {
  const std::lock_guard lock(mutex_);
  return std::exchange(reversal_, std::nullopt);
}

bool Releases::note_failure(const std::string& message, const Source& source) {
  const std::lock_guard lock(mutex_);
  const bool news = !last_error_ || last_error_->message != message;
  if (news) last_error_ = LoadFailure{message, source, std::chrono::system_clock::now()};
  return news;
}

bool Releases::clear_failure() {
  const std::lock_guard lock(mutex_);
  const MembersLock members(members_);
  return forget_failures();
}

bool Releases::forget_failures() noexcept {
  for (const auto& [name, member] : members_) member->last_error.reset();
  return std::exchange(last_error_, std::nullopt).has_value();
}

/// Of each policy: none has changed.
void Releases::count_refusal() {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, member] : members_) member->count_refusal();
}

}  // namespace triage::policy
