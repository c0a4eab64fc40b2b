#include "runtime/policy/releases/restart.h"

#include <fmt/format.h>

#include "runtime/messages/printable.h"
#include "runtime/policy/releases/releases.h"

namespace triage::policy {

/// Under the mutex, where there were no more `decisions` since. `change` returns whether anything is another way.
template <class Change>
void Restart::change(std::optional<uint64_t> decisions, const Change& change) {
  {
    const std::lock_guard lock(releases_.mutex());
    if (decisions && *decisions != releases_.decisions()) return;
    if (!change()) return;
  }
  keep_choice();
}

void Restart::select_disk(std::optional<uint64_t> decisions) {
  change(decisions, [&] {
    choice_.reset();
    return true;
  });
}

void Restart::select_live(std::optional<uint64_t> decisions) {
  change(decisions, [&] {
    releases_.reloads().forget_deleted();
    choice_ = make(releases_.live_locked(), ChosenBy::trial);
    return true;
  });
}

void Restart::forget_choice_of_host(uint64_t decisions) {
  change(decisions, [&] {
    const bool is_of_host = choice_ && (choice_->by == ChosenBy::pin || choice_->by == ChosenBy::rollback);
    if (is_of_host) choice_.reset();
    return is_of_host;
  });
}

std::shared_ptr<const VersionChoice> Restart::make(const Release& release, ChosenBy by,
                                                   const std::string& reason) const {
  const std::optional<Contents>& seen = releases_.reloads().observed_locked();
  const bool of_disk = seen && releases_.origin().holds(*seen, release);
  if (by != ChosenBy::pin && (of_disk || (by == ChosenBy::failure && !seen))) return nullptr;
  // A failed source that is gone may come back as it was.
  const bool is_gone = releases_.reloads().is_deleted() && by != ChosenBy::failure;
  return std::make_shared<const VersionChoice>(
      VersionChoice{by, release.number, release.contents, is_gone ? std::nullopt : seen, messages::one_line(reason)});
}

std::shared_ptr<const VersionChoice> Restart::choice() const {
  const std::lock_guard lock(releases_.mutex());
  return choice_;
}

std::shared_ptr<const VersionChoice> Restart::after_reload(const Release& release, bool pinned) const {
  if (pinned) return make(release, ChosenBy::pin);
  return release.on_trial() && choice_ && choice_->retries(release.contents.source) ? choice_ : nullptr;
}

bool Restart::settle(const Release& live) noexcept {
  if (live.on_trial() || !choice_ || !choice_->retries(live.contents.source)) return false;
  choice_.reset();
  return true;
}

KeptChoices::KeptChoice Restart::find() const {
  if (releases_.file().empty()) return {};
  return releases_.runtime().choices().find(releases_.file());
}

void Restart::warn(const char* what, const std::string& failure) const {
  if (!failure.empty()) releases_.log().write(LogLevel::warn, fmt::format("{}: {}", what, failure), failure);
}

void Restart::keep_choice() {
  if (releases_.file().empty()) return;
  std::string failure;
  {
    const std::lock_guard keeping(keeping_);
    const KeptChoices& kept = releases_.runtime().choices();
    const std::shared_ptr<const VersionChoice> chosen = choice();
    failure = chosen ? kept.keep(releases_.file(), *chosen) : kept.forget(releases_.file());
  }
  warn("cannot keep for a restart which version is live", failure);
}

void Restart::keep_contents() {
  if (releases_.file().empty()) return;
  std::string failure;
  {
    const std::lock_guard keeping(keeping_);
    const std::shared_ptr<Release> live = releases_.live();
    if (live->number == kept_number_ || live->untried()) return;
    failure = releases_.runtime().last_good().keep(releases_.file(), packed_or_source(live->contents));
    if (failure.empty()) kept_number_ = live->number;
  }
  warn("cannot keep the last good version", failure);
}

}  // namespace triage::policy
