#pragma once
#include "runtime/policy/bundles/manifest.h"
#include "runtime/policy/core.h"

#include <triage/bundle.h>

#include <filesystem>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace triage::policy {

/// Policies that change together. It owns them: whoever has a handle of one has one of the bundle.
///
/// Locks are taken in this order: `changing_`, those of a member's PolicyCore::Changing in the order of names, `mutex_`, the short
/// mutexes of members in the order of names. Calls take the last two only, and only when a version fails.
class BundleCore : public Reloadable, public std::enable_shared_from_this<BundleCore> {
 public:
  /// `path` is as the user gave it.
  BundleCore(std::shared_ptr<RuntimeCore> runtime, const std::filesystem::path& path);
  ~BundleCore() override;

  /// The first version: what was pinned or rolled back to before a restart, the folder, or what was good last.
  void load_first();
  /// Tells the Runtime of all its policies; once it is shared.
  void add_to_runtime();

  /// Takes up the folder as it is now, if bundle.json is another than at the last look. `retry`: in any case.
  FileChange follow(bool retry);
  /// What bundle.json holds now, in a few bytes; empty: what the last look saw. Of a folder whose files were not those
  /// that bundle.json lists, also what lies in it.
  std::string news() const;
  /// Whether the last look found a folder whose files were not those that bundle.json lists, and it may be another one
  /// now.
  bool may_be_complete() const;
  void rollback(int number, bool pin);
  void unpin();
  /// `failed` fails, a version of `member`, and `answered` answers for it. Takes all members back where it can. False: it cannot,
  /// and nothing was done.
  bool go_back(PolicyCore& member, PolicyVersion& failed, const PolicyVersion& answered, LoadFailure failure);
  /// What of the state of its policies starts anew in the version that went live last; empty for nothing, and the second time.
  std::string take_state_note();
  /// For a restart: the live version, once each of its policies was tried.
  void keep_source();
  /// A policy has passed its trial; where all have, a restart begins with the live version.
  void end_trial();

  const std::filesystem::path& dir() const noexcept { return dir_; }  // absolute
  std::shared_ptr<PolicyCore> policy(std::string_view name);
  std::vector<std::string> policies() const;
  BundleVersion version() const;
  std::vector<BundleVersion> versions() const;
  int newest_number() const;

 private:
  class MembersLock;
  using Members = std::map<std::string, std::unique_ptr<PolicyCore>>;
  using Parts = std::map<std::string, std::shared_ptr<PolicyVersion>>;  // the names are those of members
  struct Version {
    int number = 0;
    std::string version, sha256;
    std::chrono::system_clock::time_point since;
    Contents contents;
    Parts parts;

    bool on_trial() const;
    bool taken_back() const;  // one of its parts was
  };
  using Versions = std::vector<std::shared_ptr<Version>>;
  /// A version that is not live yet, and the policies that are new with it.
  struct Prepared {
    std::string name;  // of the bundle
    std::shared_ptr<Version> version;
    Members added;
  };
  /// What is to be live in each policy that changes.
  using Exchange = std::vector<std::pair<PolicyCore*, PolicyCore::Staged>>;

  FileChange take_up(const std::string& text, bool retry);
  FileChange refuse(const std::exception& error, bool is_news);
  FileChange follow_disk(bool retry) override;
  Snapshot read_folder();
  void replace_with(const Snapshot& snapshot);
  void check_successor(const Manifest& manifest) const;
  Prepared prepare(const Snapshot& snapshot, bool is_first);
  std::shared_ptr<PolicyVersion> prepare_part(PolicyCore& member, NewSource source);
  std::optional<Prepared> first_chosen();
  Prepared first_kept(const Error& error);
  bool go_live(Prepared& prepared, const std::shared_ptr<Version>& live);
  std::optional<std::string> manifest_now() const;
  void see(std::optional<std::string> manifest, bool deleted);
  void note_incomplete(std::optional<std::string> listing);
  bool see_manifest();
  void choose(const std::shared_ptr<Version>& version, ChosenBy by = ChosenBy::rollback);
  std::shared_ptr<const Choice> make_choice(const Version& version, ChosenBy by, const std::string& reason = {}) const;
  bool is_retried(const Version& version) const;
  void retry_after_restart();
  std::string title(const Version& version) const;
  bool clear_failure() override;
  void count_refusal() override;  // of each policy: none has changed
  std::shared_ptr<Version> live() const;
  // With mutex_ held, and the first three with those of the members:
  Exchange stage(const Version& version, const Members& added) const;
  void exchange(Exchange changes, const std::shared_ptr<Version>& version) noexcept;
  void tell_members(const Version& version);
  std::vector<std::pair<PolicyCore*, std::shared_ptr<PolicyVersion>>> parts_of(const Version& version) const;
  std::list<std::weak_ptr<PolicyCore>> handles_of(const Members& members);
  std::shared_ptr<Version> find_before(const PolicyCore& member, const PolicyVersion& failed,
                                       const PolicyVersion& answered) const;
  std::shared_ptr<Version> find_kept(int number) const;
  Versions::iterator find_oldest(Versions& kept) const;
  BundleVersion info(const Version& version) const;

  const std::filesystem::path dir_;

  // Under mutex_, as exchanging the live versions of members is:
  Members members_;    // grows only
  Versions versions_;  // kept for rollback, oldest first; the live one is among them
  std::shared_ptr<Version> live_;
  std::weak_ptr<Version> live_before_;  // may no longer be kept
  std::optional<std::string> seen_;     // bundle.json as it was last looked at; replaced by who holds changing_
  bool deleted_ = false;                // ... and it was not there; the same
  /// The files were not those that bundle.json lists. What lay in the folder then, and since when, as far as is known.
  struct Incomplete {
    std::string listing;
    std::chrono::steady_clock::time_point since;
  };
  std::optional<Incomplete> incomplete_;  // the same
  int next_number_ = 1;
};

}  // namespace triage::policy
