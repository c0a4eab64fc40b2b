#include "runtime/policy/releases/history.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace triage::policy {

std::shared_ptr<Release> release_of(std::shared_ptr<PolicyVersion> version) {
  auto release = std::make_shared<Release>();
  release->number = version->number;
  release->contents = version->contents;
  release->parts.emplace("", std::move(version));
  return release;
}

std::shared_ptr<Release> VersionHistory::find(int number) const {
  for (const auto& version : line_.kept())
    if (version->number == number) return release_of(version);
  return nullptr;
}

std::vector<std::shared_ptr<Release>> VersionHistory::kept() const {
  std::vector<std::shared_ptr<Release>> releases;
  for (const auto& version : line_.kept()) releases.push_back(release_of(version));
  return releases;
}

/// What answered may have been taken back since.
std::shared_ptr<Release> VersionHistory::find_before(const Lineup& asked, const Lineup& now) const {
  const std::shared_ptr<PolicyVersion>& before = asked.before->can_stand_in() ? asked.before : now.before;
  return before ? release_of(before) : nullptr;
}

void VersionHistory::add(const std::shared_ptr<Release>& release) {
  release->number = release->parts.begin()->second->number;
}

std::shared_ptr<Release> BundleHistory::find(int number) const {
  const auto found =
      std::find_if(kept_.begin(), kept_.end(), [&](const auto& release) { return release->number == number; });
  return found == kept_.end() ? nullptr : *found;
}

/// One in which nothing has failed. It has the version that has just answered for the failed one, where there is such a
/// one: the one that was live before if possible, else the latest. Otherwise an earlier one.
std::shared_ptr<Release> BundleHistory::find_before(const Lineup& asked, const Lineup& /*now*/) const {
  const auto name = [&]() -> std::optional<std::string> {  // of its policy, which the live release may lack
    for (const auto& release : kept_)
      for (const auto& [key, part] : release->parts)
        if (part == asked.version) return key;
    return std::nullopt;
  }();
  if (!name) return nullptr;
  const auto was_live = live_before_.lock();
  std::shared_ptr<Release> earlier, same;
  const auto prefer = [&](std::shared_ptr<Release>& best, const std::shared_ptr<Release>& release) {
    if (!best || best != was_live) best = release;
  };
  for (const auto& release : kept_) {
    if (release == live_ || release->taken_back()) continue;
    const auto part = release->parts.find(*name);
    if (part == release->parts.end() || part->second == asked.version || !part->second->can_stand_in()) continue;
    if (release->number < live_->number) prefer(earlier, release);
    if (part->second == asked.before) prefer(same, release);
  }
  return same ? same : earlier;
}

/// What goes where the last of `kept` goes live. Not the live one, and not the latest that calls could go back to:
/// later ones may all be on trial.
BundleHistory::Kept::iterator BundleHistory::find_oldest(Kept& kept) const {
  const auto can_stand_in = [](const auto& part) { return part.second->can_stand_in(); };
  const auto way_back = std::find_if(std::next(kept.rbegin()), kept.rend(), [&](const auto& release) {
    return std::all_of(release->parts.begin(), release->parts.end(), can_stand_in);
  });
  const auto oldest = std::find_if(kept.begin(), std::prev(kept.end()), [&](const auto& release) {
    return release != live_ && (way_back == kept.rend() || release != *way_back);
  });
  return oldest == std::prev(kept.end()) ? kept.end() : oldest;
}

void BundleHistory::add(const std::shared_ptr<Release>& release) {
  Reclaimer::Garbage dropped;
  Kept kept = kept_;
  kept.push_back(release);
  if (kept.size() > std::max<size_t>(2, runtime_.options().keep_versions))
    if (const auto oldest = find_oldest(kept); oldest != kept.end()) {
      dropped = Reclaimer::garbage(nullptr, *oldest);
      kept.erase(oldest);
    }
  release->number = next_number_++;
  kept_.swap(kept);
  runtime_.reclaimer().retire(std::move(dropped));
}

void BundleHistory::note_live(const std::shared_ptr<Release>& release) noexcept {
  if (live_ != release) live_before_ = live_;
  live_ = release;
}

}  // namespace triage::policy
