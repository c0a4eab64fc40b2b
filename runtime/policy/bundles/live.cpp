// Which version of a bundle is live: rolled back to, pinned, taken back by a call, kept for a restart.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runtime/messages/boundary.h"
#include "runtime/messages/printable.h"
#include "runtime/policy/afterwards.h"
#include "runtime/policy/bundles/bundle.h"
#include "runtime/policy/bundles/members_lock.h"

namespace triage::policy {

using Clock = std::chrono::system_clock;

bool BundleCore::Version::on_trial() const {
  return std::any_of(parts.begin(), parts.end(), [](const auto& part) { return part.second->trial.on(); });
}

bool BundleCore::Version::taken_back() const {
  return std::any_of(parts.begin(), parts.end(), [](const auto& part) { return part.second->taken_back.load(); });
}

/// Makes all that the members need: where that throws, nothing has changed.
BundleCore::Exchange BundleCore::stage(const Version& version, const Members& added) const {
  Exchange changes;
  for (const auto& [name, part] : version.parts) {
    const auto known = members_.find(name);
    PolicyCore& member = known != members_.end() ? *known->second : *added.at(name);
    const auto* live = member.live_.load(std::memory_order_relaxed);
    if (live && live->version == part) continue;
    changes.emplace_back(&member, part->number == 0 ? member.stage_new(part) : member.stage(part, member.params_));
  }
  return changes;
}

/// Between the first and the last policy there is nothing but the exchange of pointers.
void BundleCore::exchange(Exchange changes, const std::shared_ptr<Version>& version) noexcept {
  for (auto& [member, staged] : changes) member->commit(std::move(staged));
  if (live_ != version) {
    version->since = Clock::now();
    live_before_ = live_;
  }
  live_ = version;
}

/// A version in which nothing has failed. It has the version of `member` that has just answered for `failed`, where there is such a
/// one: the one that was live before if possible, else the latest. Otherwise an earlier one.
std::shared_ptr<BundleCore::Version> BundleCore::find_before(const PolicyCore& member, const PolicyVersion& failed,
                                                             const PolicyVersion& answered) const {
  const auto place =
      std::find_if(members_.begin(), members_.end(), [&](const auto& known) { return known.second.get() == &member; });
  const auto was_live = live_before_.lock();
  std::shared_ptr<Version> earlier, same;
  const auto prefer = [&](std::shared_ptr<Version>& best, const std::shared_ptr<Version>& version) {
    if (!best || best != was_live) best = version;
  };
  for (const auto& version : versions_) {
    if (version == live_ || version->taken_back()) continue;
    const auto part = version->parts.find(place->first);
    if (part == version->parts.end() || part->second.get() == &failed || !part->second->can_stand_in()) continue;
    if (version->number < live_->number) prefer(earlier, version);
    if (part->second.get() == &answered) prefer(same, version);
  }
  return same ? same : earlier;
}

bool BundleCore::go_back(PolicyCore& member, PolicyVersion& failed, const PolicyVersion& answered,
                         LoadFailure failure) {
  std::shared_ptr<Version> from, to;
  {
    const std::lock_guard lock(mutex_);
    const MembersLock members(members_);
    if (member.live_.load(std::memory_order_relaxed)->version.get() != &failed) {  // another call was first
      failed.failures.fetch_add(1, std::memory_order_relaxed);
      return true;
    }
    if (!pinned_) to = find_before(member, failed, answered);
    if (!to) return false;
    from = live_;
    PolicyCore::Reversal reversal{to->number, failure};
    auto choice = make_choice(*to, ChosenBy::failure, failure.message);
    std::vector<std::optional<LoadFailure>> last_errors(members_.size() + 1, failure);
    exchange(take_back(failed, [&] { return stage(*to, {}); }), to);
    failed.failures.fetch_add(1, std::memory_order_relaxed);
    ++member.reverted_;
    member.known_sources_.forget(failed.contents);
    choice_ = std::move(choice);
    last_error_.swap(last_errors.back());
    auto last_error = last_errors.begin();
    for (const auto& [name, one] : members_) one->last_error_.swap(*last_error++);
    reversal_ = std::move(reversal);
  }
  afterwards(runtime_->logger(), [&] {
    keep_source();
    keep_choice();
    tell_members(*to);
    log(LogLevel::error,
        fmt::format("{} was taken back, version {} (\"{}\") of all its policies is live again, because policy '{}' "
                    "failed: {}",
                    title(*from), to->number, to->version, member.name(), failure.message),
        failure.message, from->number);
    runtime_->wake_watches();
  });
  return true;
}

/// What of the params and the state does not fit this version, which is live again. What they noted before is told by nobody.
void BundleCore::tell_members(const Version& version) {
  for (const auto& [member, part] : parts_of(version)) {
    member->tell_params(*part);
    member->tell_state(*part);
  }
}

std::vector<std::pair<PolicyCore*, std::shared_ptr<PolicyVersion>>> BundleCore::parts_of(const Version& version) const {
  std::vector<std::pair<PolicyCore*, std::shared_ptr<PolicyVersion>>> parts;
  const std::lock_guard lock(mutex_);
  for (const auto& [name, part] : version.parts)
    if (const auto member = members_.find(name); member != members_.end())
      parts.emplace_back(member->second.get(), part);
  return parts;
}

void BundleCore::rollback(int number, bool pin) {
  const Changing changing(*this);
  if (pinned()) see_manifest();   // what was saved meanwhile is not followed either
  note_incomplete(std::nullopt);  // nor what completes it
  std::shared_ptr<Version> version;
  {
    const std::lock_guard lock(mutex_);
    const MembersLock members(members_);
    version = find_kept(number);
    for (const auto& [name, part] : version->parts)
      if (part->taken_back.exchange(false)) part->trial.begin_again(runtime_->options().trial_calls);
    exchange(stage(*version, {}), version);
    pinned_ = pin;
    for (const auto& [name, member] : members_) member->pinned_ = pin;
  }
  afterwards(runtime_->logger(), [&] {
    choose(version, pin ? ChosenBy::pin : ChosenBy::rollback);
    keep_source();
    tell_members(*version);
    log(LogLevel::info, fmt::format("{} is live again{}", title(*version), pin ? ", and pinned" : ""), {}, number);
  });
}

void BundleCore::unpin() {
  const Changing changing(*this);
  {
    const std::lock_guard lock(mutex_);
    const MembersLock members(members_);
    pinned_ = false;
    for (const auto& [name, member] : members_) member->pinned_ = false;
  }
  afterwards(runtime_->logger(), [&] { choose(nullptr); });
}

std::shared_ptr<BundleCore::Version> BundleCore::find_kept(int number) const {
  std::vector<int> kept;
  for (const auto& version : versions_) {
    if (version->number == number) return version;
    kept.push_back(version->number);
  }
  throw InputError(
      fmt::format("bundle '{}' has no version {} to go back to; it keeps {}", name_, number, fmt::join(kept, ", ")));
}

/// What was live before a restart in the place of what the folder says; nothing where the folder is to be followed.
std::optional<BundleCore::Prepared> BundleCore::first_chosen() {
  auto [choice, trouble] = runtime_->choices().find(file_);
  if (!trouble.empty())
    log(LogLevel::warn, fmt::format("bundle '{}': what was live before this start is not known: {}", path_, trouble),
        trouble);
  if (!choice) return std::nullopt;
  const std::optional<std::string> text = manifest_now();
  const bool unchanged = choice->on_disk ? text == choice->on_disk->source : !text;
  const char* const what = done_by(choice->by);
  if (choice->by != ChosenBy::pin && !unchanged) {
    log(LogLevel::info,
        fmt::format("bundle '{}': {} has changed since version {} was {}, before this start; it is followed again",
                    path_, manifest_name, choice->number, what));
    keep_choice();
    return std::nullopt;
  }
  std::optional<Prepared> first;
  try {
    first = prepare(kept_bundle(dir_, choice->live, runtime_->options().verify), /*is_first=*/true);
  } catch (const Error& error) {
    log(LogLevel::error,
        fmt::format("bundle '{}': what was {} before this start cannot be used, and the folder is followed: {}", path_,
                    what, error.what()),
        error.what());
    return std::nullopt;
  }
  log(LogLevel::warn, fmt::format("bundle '{}': what was {} before this start (version {} then, \"{}\") is live", path_,
                                  what, choice->number, first->version->version));
  see(text, /*deleted=*/false);  // where it is, the next look says so
  const std::lock_guard lock(mutex_);
  pinned_ = choice->by == ChosenBy::pin;
  for (const auto& [name, member] : first->added) member->pinned_ = pinned_;
  choice_ = std::make_shared<const Choice>(std::move(*choice));
  return first;
}

/// What is to be live after a restart; null: what the folder says.
void BundleCore::choose(const std::shared_ptr<Version>& version, ChosenBy by) {
  {
    const std::lock_guard lock(mutex_);
    choice_.reset();
    if (version && deleted_) seen_.reset();  // a bundle.json that comes back is followed, also with the bytes it had
    if (version) choice_ = make_choice(*version, by);
  }
  keep_choice();
}

/// Null where the folder holds this version.
std::shared_ptr<const Choice> BundleCore::make_choice(const Version& version, ChosenBy by,
                                                      const std::string& reason) const {
  if (by != ChosenBy::pin && seen_ == version.contents.source) return nullptr;
  std::optional<Contents> on_disk;
  if (seen_ && !deleted_) on_disk = Contents{*seen_, {}, /*in_folder=*/true};
  return std::make_shared<const Choice>(
      Choice{by, version.number, version.contents, std::move(on_disk), messages::one_line(reason)});
}

/// A version that was refused, or taken back, before a restart.
void BundleCore::retry_after_restart() {
  if (note_failure_of_choice(file_.string())) {
    refused_ = true;
    count_refusal();
  }
  if (const auto kept = choice(); !kept || kept->by != ChosenBy::trial) return;
  if (const auto text = manifest_now()) take_up(*text, /*retry=*/true);
}

/// Whether it is on trial and was refused before: until the trial is over, a restart begins with the version before it again.
bool BundleCore::is_retried(const Version& version) const {
  const std::lock_guard lock(mutex_);
  return version.on_trial() && choice_ && choice_->retries(version.contents.source);
}

void BundleCore::end_trial() {
  {
    const std::lock_guard lock(mutex_);
    if (live_->on_trial() || !choice_ || !choice_->retries(live_->contents.source)) return;
    choice_.reset();
  }
  keep_choice();
}

void BundleCore::count_refusal() {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, member] : members_) member->count_refusal();
}

void BundleCore::keep_source() {
  const std::lock_guard keeping(keeping_);  // what is written last is what was live last
  const std::shared_ptr<Version> now = live();
  const auto is_untried = [](const auto& part) { return part.second->trial.on() && !part.second->trial.tried(); };
  if (now->number == kept_number_ || std::any_of(now->parts.begin(), now->parts.end(), is_untried)) return;
  keep_contents(now->number, now->contents);
}

BundleVersion BundleCore::info(const Version& version) const {
  BundleVersion info;
  info.number = version.number;
  info.version = version.version;
  info.sha256 = version.sha256;
  info.since = version.since;
  info.live = live_.get() == &version;
  info.pinned = info.live && pinned_;
  info.on_trial = version.on_trial();
  info.taken_back = version.taken_back();
  for (const auto& [name, part] : version.parts) info.policies.emplace_back(name, part->number);
  return info;
}

BundleVersion BundleCore::version() const {
  const std::lock_guard lock(mutex_);
  BundleVersion live = info(*live_);
  live.last_error = last_error_;
  return live;
}

std::vector<BundleVersion> BundleCore::versions() const {
  const std::lock_guard lock(mutex_);
  std::vector<BundleVersion> infos;
  for (const auto& version : versions_) infos.push_back(info(*version));
  return infos;
}

int BundleCore::newest_number() const {
  const std::lock_guard lock(mutex_);
  return next_number_ - 1;
}

std::string BundleCore::take_state_note() {
  std::vector<std::string> notes;
  const std::lock_guard lock(mutex_);
  for (const auto& [name, member] : members_)
    if (std::string note = member->take_state_note(); !note.empty()) notes.push_back(name + ": " + note);
  return fmt::format("{}", fmt::join(notes, "; "));
}

std::shared_ptr<BundleCore::Version> BundleCore::live() const {
  const std::lock_guard lock(mutex_);
  return live_;
}

bool BundleCore::clear_failure() {
  const std::lock_guard lock(mutex_);
  const MembersLock members(members_);
  for (const auto& [name, member] : members_) member->last_error_.reset();
  return std::exchange(last_error_, std::nullopt).has_value();
}

std::shared_ptr<PolicyCore> BundleCore::policy(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto found = members_.find(std::string(name));
  if (found != members_.end()) return {shared_from_this(), found->second.get()};
  std::vector<std::string> names;
  for (const auto& member : members_) names.push_back(member.first);
  throw InputError(fmt::format("bundle '{}' has no policy '{}'; it has {}", name_, name, fmt::join(names, ", ")));
}

std::vector<std::string> BundleCore::policies() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& member : members_) names.push_back(member.first);
  return names;
}

}  // namespace triage::policy

namespace triage {

using messages::errors_only;

policy::BundleCore& Bundle::core() const {
  if (!core_) throw InputError("this triage::Bundle holds no bundle; get one from Runtime::load_bundle");
  return *core_;
}

const std::string& Bundle::name() const { return core().name(); }

Policy Bundle::policy(std::string_view name) const { return Policy(core().policy(name)); }

std::vector<std::string> Bundle::policies() const { return core().policies(); }

BundleVersion Bundle::version() const {
  return errors_only([&] { return core().version(); });
}

std::vector<BundleVersion> Bundle::versions() const {
  return errors_only([&] { return core().versions(); });
}

void Bundle::rollback(int number) const {
  errors_only([&] { core().rollback(number, /*pin=*/false); });
}

void Bundle::pin(int number) const {
  errors_only([&] { core().rollback(number, /*pin=*/true); });
}

Reload Bundle::unpin() const {
  return errors_only([&] {
    core().unpin();
    return reload();
  });
}

Reload Bundle::reload() const {
  return errors_only([&] {
    using Change = policy::PolicyCore::FileChange;
    const Change change = core().follow(/*retry=*/true);
    if (change == Change::swapped) return Reload::swapped;
    return change == Change::refused || change == Change::deleted ? Reload::refused : Reload::unchanged;
  });
}

}  // namespace triage
