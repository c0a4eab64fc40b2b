// How a bundle changes: its folder is read whole, every policy is loaded, tried and compiled, and then all are exchanged. Whatever
// goes wrong, the live version stays live.
#include "runtime/policy/bundles/bundle.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <set>

#include "runtime/files/checksum.h"
#include "runtime/policy/afterwards.h"
#include "runtime/policy/bundles/members_lock.h"
#include "runtime/policy/files/sha256.h"

namespace triage::policy {
namespace {

namespace fs = std::filesystem;

fs::path plain_absolute(const fs::path& path) {
  fs::path normal = fs::absolute(path).lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

/// Whether a version with these contents would be made of the same bytes.
bool is_same(const Contents& contents, const NewSource& source) {
  return contents.source == source.source &&
         std::all_of(contents.files.begin(), contents.files.end(), [&](const auto& file) {
           const auto now = source.given->find(file.first);
           return now == source.given->end() ? !file.second.bytes : file.second.is_same_read(now->second);
         });
}

}  // namespace

BundleCore::BundleCore(std::shared_ptr<RuntimeCore> runtime, const fs::path& path)
    : Reloadable("bundle", std::move(runtime), path.string(), plain_absolute(path) / manifest_name),
      dir_(plain_absolute(path)) {}

BundleCore::~BundleCore() = default;

std::string BundleCore::title(const Version& version) const {
  return fmt::format("bundle '{}': version {} (\"{}\")", name_, version.number, version.version);
}

void BundleCore::load_first() {
  const Changing changing(*this);
  std::optional<Error> failure;
  std::optional<Prepared> first = first_chosen();
  if (!first) {
    try {
      first = prepare(read_folder(), /*is_first=*/true);
    } catch (const Error& error) {
      first = first_kept(error);
      failure = error;
    }
  }
  name_ = first->name;
  go_live(*first, nullptr);
  if (failure) {
    count_refusal();
    note_failure(failure->what(), failure->source());
  }
  retry_after_restart();
  log(LogLevel::debug, fmt::format("{} loaded from '{}'", title(*live()), path_), {}, live()->number);
}

/// In the place of a folder that cannot be used: `error` says why, and is thrown where nothing was kept.
BundleCore::Prepared BundleCore::first_kept(const Error& error) {
  refused_ = true;
  auto kept = runtime_->last_good().find(file_);
  if (!kept) throw;
  Prepared first = prepare(kept_bundle(dir_, std::move(*kept), runtime_->options().verify), /*is_first=*/true);
  log(LogLevel::error, fmt::format("bundle '{}': {}; running its last good version instead", path_, error.what()),
      error.what());
  return first;
}

/// Of bundle.json; nothing where it cannot be read. Throws NotNow.
std::optional<std::string> BundleCore::manifest_now() const {
  const FileContent text = read_manifest(dir_);
  if (text.passing) throw NotNow(unread_message(manifest_name, text.error), {file_.string(), 0});
  return text.bytes ? std::optional(*text.bytes) : std::nullopt;
}

/// Notes what was looked at.
Snapshot BundleCore::read_folder() {
  std::optional<std::string> manifest = manifest_now();
  const bool deleted = !manifest;
  see(std::move(manifest), deleted);
  note_incomplete(listing_of(dir_));  // unless what follows does not throw
  Snapshot snapshot = read_bundle(dir_, runtime_->options().verify);
  note_incomplete(std::nullopt);
  see(snapshot.contents.source, /*deleted=*/false);
  return snapshot;
}

void BundleCore::see(std::optional<std::string> manifest, bool deleted) {
  const std::lock_guard lock(mutex_);
  seen_.swap(manifest);
  deleted_ = deleted;
}

void BundleCore::note_incomplete(std::optional<std::string> listing) {
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  if (!listing)
    incomplete_.reset();
  else if (!incomplete_ || incomplete_->listing != *listing)
    incomplete_ = Incomplete{std::move(*listing), now};
}

/// Times of files are coarse: a change that came right behind the last one may not show in the listing.
bool BundleCore::may_be_complete() const {
  constexpr std::chrono::seconds coarse{2};
  std::optional<Incomplete> then;
  {
    const std::lock_guard lock(mutex_);
    then = incomplete_;
  }
  return then && (std::chrono::steady_clock::now() - then->since < coarse || listing_of(dir_) != then->listing);
}

std::string BundleCore::news() const {
  if (may_be_complete()) return listing_of(dir_);
  const FileContent text = read_manifest(dir_);
  const std::lock_guard lock(mutex_);
  if (!text.bytes) return deleted_ || (pinned_ && !seen_) ? "" : text.error;
  return deleted_ ? "restored" : *text.bytes == seen_ ? "" : files::checksum_text(files::checksum(*text.bytes));
}

/// Looks at bundle.json without taking it up. Whether it is another one than at the last look.
bool BundleCore::see_manifest() try {
  std::optional<std::string> text = manifest_now();
  const bool has_changed = text && text != seen_;
  if (text && deleted_) clear_failure();  // which says that it was deleted
  const bool deleted = deleted_ && !text;
  see(std::move(text), deleted);
  return has_changed;
} catch (const NotNow&) {
  put_off_ = true;
  return false;
}

BundleCore::FileChange BundleCore::follow(bool retry) {
  const Changing changing(*this);
  return look_at_disk(retry);
}

BundleCore::FileChange BundleCore::follow_disk(bool retry) {
  if (pinned()) {
    if (see_manifest())
      log(LogLevel::info,
          fmt::format("{} is pinned, and stays live until `unpin`: '{}' has changed", title(*live()), file_.string()));
    return FileChange::unchanged;
  }
  const std::optional<std::string> text = manifest_now();
  if (!text) {
    if (retry) {  // asked for: it is followed as soon as it is back
      see(std::nullopt, deleted_);
      afterwards(runtime_->logger(), [&] { choose(nullptr); });
    }
    if (deleted_ && !retry) return FileChange::unchanged;
    const bool is_news =
        note_failure(fmt::format("'{}' is gone, or cannot be read", file_.string()), {file_.string(), 0});
    const bool was_deleted = deleted_;
    see(seen_, /*deleted=*/true);
    if (was_deleted && !is_news) return FileChange::unchanged;
    log(LogLevel::warn, fmt::format("{} stays live: '{}' is gone, or cannot be read", title(*live()), file_.string()));
    return FileChange::deleted;
  }
  const bool was_deleted = deleted_;
  if (was_deleted) see(seen_, /*deleted=*/false);
  const FileChange change = take_up(*text, retry || (was_deleted && refused_));
  if (!was_deleted || change != FileChange::unchanged) return change;
  if (!note_failure_of_choice(file_.string())) clear_failure();
  return FileChange::restored;
}

/// Files that are not those that bundle.json lists may still be on their way: then each look reads them again.
BundleCore::FileChange BundleCore::take_up(const std::string& text, bool retry) {
  if (!retry && !incomplete_ && seen_ == text) return FileChange::unchanged;
  const bool was_refused = std::exchange(refused_, false), was_seen = seen_ == text;
  try {
    const Snapshot snapshot = read_folder();
    if (snapshot.contents == live()->contents) {
      if (choice()) afterwards(runtime_->logger(), [&] { choose(nullptr); });
      return clear_failure() ? FileChange::restored : FileChange::unchanged;
    }
    replace_with(snapshot);
  } catch (const std::exception& error) {
    if (is_passing(error)) {
      see(std::nullopt, /*deleted=*/false);  // the next look takes it up
      return put_off(error);
    }
    return refuse(error, retry || !was_refused || !was_seen);
  }
  return FileChange::swapped;
}

/// `is_news`: whether or not the message is another one than before.
BundleCore::FileChange BundleCore::refuse(const std::exception& error, bool is_news) {
  refused_ = true;
  if (!note_failure(error.what(), source_of(error, {}, file_.string())) && !is_news) return FileChange::unchanged;
  const std::shared_ptr<Version> now = live();
  log(LogLevel::error, fmt::format("{} stays live, the new one was refused: {}", title(*now), error.what()),
      error.what(), now->number);
  count_refusal();
  afterwards(runtime_->logger(), [&] { choose(now, ChosenBy::trial); });
  return FileChange::refused;
}

void BundleCore::check_successor(const Manifest& manifest) const {
  const auto change = [&](const std::string& what) {
    throw LoadError(fmt::format("the new {} (version {}) changes {}; hosts call the bundle by the contract of version "
                                "{}. Keep the contract, or load the folder as another bundle",
                                manifest_name, manifest.version, what, live()->version),
                    {file_.string(), 0});
  };
  if (manifest.name != name_) change(fmt::format("the name of the bundle from '{}' to '{}'", name_, manifest.name));
  std::set<std::string> keys;
  for (const auto& [file, hash] : manifest.policies) keys.insert(policy_key(file));
  for (const auto& [name, member] : members_)
    if (!keys.count(name)) change(fmt::format("the policies: '{}' is gone", name));
}

/// Tries again where a call has taken the live version back meanwhile: what was tried beside it says nothing then.
void BundleCore::replace_with(const Snapshot& snapshot) {
  check_successor(snapshot.manifest);
  std::deque<PolicyCore::Changing> changing;
  for (const auto& [name, member] : members_) changing.emplace_back(*member);
  for (;;) {
    const std::shared_ptr<Version> before = live();
    Prepared next = prepare(snapshot, /*is_first=*/false);
    if (go_live(next, before)) break;
  }
  afterwards(runtime_->logger(), [&] {
    if (!is_retried(*live())) choose(nullptr);
  });
}

/// Loads and tries each policy, but for those that are as they were.
BundleCore::Prepared BundleCore::prepare(const Snapshot& snapshot, bool is_first) {
  Prepared next{snapshot.manifest.name, std::make_shared<Version>(), {}};
  next.version->version = snapshot.manifest.version;
  next.version->sha256 = sha256_text(snapshot.contents.source);
  next.version->contents = snapshot.contents;
  for (const auto& [file, hash] : snapshot.manifest.policies) {
    const std::string key = policy_key(file);
    NewSource source{*snapshot.contents.files.at(file).bytes, (fs::path(path_) / file).string(), dir_ / file};
    source.given = snapshot.files_beside(file);
    std::shared_ptr<PolicyVersion>& part = next.version->parts[key];
    if (const auto known = members_.find(key); known != members_.end()) {
      part = prepare_part(*known->second, std::move(source));
    } else {
      auto added = std::make_unique<PolicyCore>(runtime_, source.path, source.file, this);
      const PolicyCore::Changing changing(*added);
      part = added->make_first(std::move(source), /*with_tests=*/!is_first);
      next.added.emplace(key, std::move(added));
    }
  }
  return next;
}

std::shared_ptr<PolicyVersion> BundleCore::prepare_part(PolicyCore& member, NewSource source) {
  const std::shared_ptr<PolicyVersion> live = [&] {
    const std::lock_guard lock(member.mutex_);
    return member.live_.load(std::memory_order_relaxed)->version;
  }();
  if (is_same(live->contents, source)) return live;
  try {
    return member.make_successor(std::move(source));
  } catch (const std::exception& error) {
    member.note_failure(error.what(), source_of(error, {}, member.path()));
    throw;
  }
}

/// With mutex_ held: what goes where the last of `kept` goes live. Not the live one, and not the latest that calls could go back to: later
/// ones may all be on trial.
BundleCore::Versions::iterator BundleCore::find_oldest(Versions& kept) const {
  const auto can_stand_in = [](const auto& part) { return part.second->can_stand_in(); };
  const auto way_back = std::find_if(std::next(kept.rbegin()), kept.rend(), [&](const auto& version) {
    return std::all_of(version->parts.begin(), version->parts.end(), can_stand_in);
  });
  const auto oldest = std::find_if(kept.begin(), std::prev(kept.end()), [&](const auto& version) {
    return version != live_ && (way_back == kept.rend() || version != *way_back);
  });
  return oldest == std::prev(kept.end()) ? kept.end() : oldest;
}

/// False where `live` is no longer live. From the exchange on nothing fails.
bool BundleCore::go_live(Prepared& prepared, const std::shared_ptr<Version>& live) {
  Reclaimer::Garbage dropped;
  std::vector<std::pair<PolicyCore*, std::shared_ptr<PolicyVersion>>> changed;
  std::list<std::weak_ptr<PolicyCore>> added;
  if (live) added = handles_of(prepared.added);
  {
    const std::lock_guard lock(mutex_);
    const MembersLock members(members_);
    if (live_ != live) return false;
    Exchange changes = stage(*prepared.version, prepared.added);
    for (const auto& change : changes) changed.emplace_back(change.first, change.second.next->version);
    Versions kept = versions_;
    kept.push_back(prepared.version);
    if (kept.size() > std::max<size_t>(2, runtime_->options().keep_versions))
      if (const auto oldest = find_oldest(kept); oldest != kept.end()) {
        dropped = Reclaimer::garbage(nullptr, *oldest);
        kept.erase(oldest);
      }
    prepared.version->number = next_number_++;
    versions_.swap(kept);
    exchange(std::move(changes), prepared.version);
    members_.merge(prepared.added);
    last_error_.reset();
    for (const auto& [name, member] : members_) member->last_error_.reset();
    for (const auto& [member, part] : changed) member->note_went_live(*part);
  }
  runtime_->reclaimer().retire(std::move(dropped));
  runtime_->add_policies(std::move(added));
  afterwards(runtime_->logger(), [&] {
    for (const auto& [member, part] : changed) member->tell_live(*part);
    keep_source();
    if (live) log(LogLevel::info, title(*prepared.version) + " is live", {}, prepared.version->number);
  });
  return true;
}

void BundleCore::add_to_runtime() {
  const std::lock_guard lock(mutex_);
  runtime_->add_policies(handles_of(members_));
}

std::list<std::weak_ptr<PolicyCore>> BundleCore::handles_of(const Members& members) {
  std::list<std::weak_ptr<PolicyCore>> handles;
  for (const auto& [name, member] : members)
    handles.push_back(std::shared_ptr<PolicyCore>(shared_from_this(), member.get()));
  return handles;
}

}  // namespace triage::policy
