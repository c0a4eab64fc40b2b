// A bundle: its folder is read whole, and every policy that changed is loaded, tried and compiled.
#include "runtime/policy/releases/folder_origin.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "runtime/files/checksum.h"
#include "runtime/policy/bundles/manifest.h"
#include "runtime/policy/core/making.h"
#include "runtime/policy/files/not_now.h"
#include "runtime/policy/files/policy_files.h"
#include "runtime/policy/files/sha256.h"
#include "runtime/policy/releases/releases.h"

namespace triage::policy {
namespace {

namespace fs = std::filesystem;

/// Whether a version with these contents would be made of the same bytes.
bool is_same(const Contents& contents, const NewSource& source) {
  return contents.source == source.source &&
         std::all_of(contents.files.begin(), contents.files.end(), [&](const auto& file) {
           const auto now = source.given->find(file.first);
           return now == source.given->end() ? !file.second.bytes : file.second.is_same_read(now->second);
         });
}

class FolderOrigin final : public ReleaseOrigin {
 public:
  explicit FolderOrigin(Releases& releases) : releases_(releases), dir_(releases.file().parent_path()) {}

  std::optional<std::string> read() const override {
    const FileContent text = read_manifest(dir_);
    if (text.passing) throw NotNow(unread_message(manifest_name, text.error), {shown_file(), 0});
    return text.bytes ? std::optional(*text.bytes) : std::nullopt;
  }

  Prepared make_first() override { return make_of(read_folder(), /*is_first=*/true); }

  std::optional<Prepared> make(std::string /*text*/, bool /*on_disk*/) override {
    const Snapshot snapshot = read_folder();
    if (snapshot.contents == releases_.live()->contents) return std::nullopt;
    check_successor(snapshot.manifest);
    return make_of(snapshot, /*is_first=*/false);
  }

  Prepared make_kept(const Contents& contents) override {
    return make_of(kept_bundle(dir_, contents, verify()), /*is_first=*/true);
  }

  std::string news() const override {
    if (may_be_complete()) return listing_of(dir_);
    const FileContent text = read_manifest(dir_);
    const std::optional<Contents> seen = releases_.reloads().seen();
    const bool is_deleted = releases_.reloads().is_deleted();
    if (!text.bytes) return is_deleted || (releases_.pinned() && !seen) ? "" : text.error;
    if (is_deleted) return "restored";
    return seen && *text.bytes == seen->source ? "" : files::checksum_text(files::checksum(*text.bytes));
  }

  std::set<fs::path> places() const override { return places_of(releases_.file(), {manifest_name}); }
  std::vector<fs::path> files() const override { return {releases_.file()}; }
  std::string shown_file() const override { return releases_.file().string(); }
  bool holds(const Contents& seen, const Release& release) const override {
    return seen.source == release.contents.source;
  }

  bool is_incomplete() const override {
    const std::lock_guard lock(mutex_);
    return incomplete_.has_value();
  }

  /// Times of files are coarse: a change that came right behind the last one may not show in the listing.
  bool may_be_complete() const override {
    constexpr std::chrono::seconds coarse{2};
    std::optional<Incomplete> then;
    {
      const std::lock_guard lock(mutex_);
      then = incomplete_;
    }
    return then && (std::chrono::steady_clock::now() - then->since < coarse || listing_of(dir_) != then->listing);
  }

  void forget_incomplete() override { note_incomplete(std::nullopt); }

 private:
  const Verify& verify() const noexcept { return releases_.runtime().options().verify; }

  /// Notes what was looked at.
  Snapshot read_folder() {
    Reloads& reloads = releases_.reloads();
    std::optional<std::string> manifest = read();
    reloads.note_deleted(!manifest);
    if (manifest) reloads.observe_read(contents_of(std::move(*manifest)));
    note_incomplete(listing_of(dir_));  // unless what follows does not throw
    Snapshot snapshot = read_bundle(dir_, verify());
    note_incomplete(std::nullopt);
    reloads.note_deleted(false);
    reloads.observe_read(contents_of(snapshot.contents.source));
    return snapshot;
  }

  static Contents contents_of(std::string manifest) { return {std::move(manifest), {}, /*in_folder=*/true}; }

  void note_incomplete(std::optional<std::string> listing) {
    const auto now = std::chrono::steady_clock::now();
    const std::lock_guard lock(mutex_);
    if (!listing)
      incomplete_.reset();
    else if (!incomplete_ || incomplete_->listing != *listing)
      incomplete_ = Incomplete{std::move(*listing), now};
  }

  void check_successor(const Manifest& manifest) const {
    const auto change = [&](const std::string& what) {
      throw LoadError(
          fmt::format("the new {} (version {}) changes {}; hosts call the bundle by the contract of version "
                      "{}. Keep the contract, or load the folder as another bundle",
                      manifest_name, manifest.version, what, releases_.live()->label),
          {shown_file(), 0});
    };
    if (manifest.name != releases_.log().name())
      change(fmt::format("the name of the bundle from '{}' to '{}'", releases_.log().name(), manifest.name));
    std::set<std::string> keys;
    for (const auto& [file, hash] : manifest.policies) keys.insert(policy_key(file));
    const std::vector<std::string> names = releases_.look_at([](const Releases::View& now) {
      std::vector<std::string> all;
      for (const auto& [name, member] : now.members) all.push_back(name);
      return all;
    });
    for (const std::string& name : names)
      if (!keys.count(name)) change(fmt::format("the policies: '{}' is gone", name));
  }

  /// Loads and tries each policy, but for those that are as they were.
  Prepared make_of(const Snapshot& snapshot, bool is_first) {
    Prepared next{snapshot.manifest.name, std::make_shared<Release>()};
    Release& release = *next.release;
    release.label = snapshot.manifest.version;
    release.sha256 = sha256_text(snapshot.contents.source);
    release.contents = snapshot.contents;
    for (const auto& [file, hash] : snapshot.manifest.policies) {
      const std::string key = policy_key(file);
      NewSource source{*snapshot.contents.files.at(file).bytes, (fs::path(releases_.log().path()) / file).string(),
                       dir_ / file};
      source.given = snapshot.files_beside(file);
      if (PolicyCore* const known = releases_.find(key)) {
        release.parts[key] = make_part(*known, std::move(source));
        continue;
      }
      auto added =
          std::make_unique<PolicyCore>(releases_.runtime().shared_from_this(), releases_, source.path, source.file);
      release.parts[key] = policy::make_first(*added, std::move(source), /*tests=*/!is_first);
      added->begin_with(*release.parts[key]);
      next.added.emplace(key, std::move(added));
    }
    return next;
  }

  static std::shared_ptr<PolicyVersion> make_part(PolicyCore& member, NewSource source) {
    std::shared_ptr<PolicyVersion> live = member.line().live();
    if (is_same(live->contents, source)) return live;
    try {
      return make_successor(member, std::move(source), Becomes::live);
    } catch (const std::exception& error) {
      const LoadFailure failure{error.what(), source_of(error, {}, member.path()), std::chrono::system_clock::now()};
      const std::lock_guard lock(member.line().mutex());
      if (!member.last_error || member.last_error->message != failure.message) member.last_error = failure;
      throw;
    }
  }

  Releases& releases_;
  const fs::path dir_;
  mutable std::mutex mutex_;  // what follows
  /// The files were not those that bundle.json lists. What lay in the folder then, and since when, as far as is known.
  struct Incomplete {
    std::string listing;
    std::chrono::steady_clock::time_point since;
  };
  std::optional<Incomplete> incomplete_;
};

}  // namespace

std::shared_ptr<Releases> open_bundle(std::shared_ptr<RuntimeCore> runtime, const fs::path& dir) {
  const fs::path file = plain_absolute(dir) / manifest_name;
  return Releases::open(runtime, "bundle", dir.string(), file, [](Releases& releases) {
    return Releases::ReleaseParts{
        {}, std::make_unique<FolderOrigin>(releases), std::make_unique<BundleHistory>(releases.runtime())};
  });
}

}  // namespace triage::policy
