#pragma once
#include <memory>
#include <mutex>
#include <string>

#include "runtime/policy/files/kept_files.h"
#include "runtime/policy/releases/release.h"

namespace triage::policy {

class Releases;

/// What is kept on the disk for a restart: the contents of the live release, once that is known to be good, and a
/// choice, where another release is to be live than the one that the policy's file or folder holds.
class Restart {
 public:
  explicit Restart(Releases& releases) : releases_(releases) {}

  std::shared_ptr<const VersionChoice> choice() const;
  /// By a reload that began after so many `decisions`, where there were no more since: a restart begins with what is on
  /// the disk.
  void select_disk(std::optional<uint64_t> decisions);
  /// ... or with the live release, because what is on the disk was refused.
  void select_live(std::optional<uint64_t> decisions);
  /// The host unpinned, and there were no more `decisions` since: what was kept of it goes.
  void forget_choice_of_host(uint64_t decisions);
  KeptChoices::KeptChoice find() const;
  void keep_choice();
  void keep_contents();

  // With the mutex of the Releases:
  /// What a restart is to begin with where `release` is live; null where the disk holds it.
  std::shared_ptr<const VersionChoice> make(const Release& release, ChosenBy by, const std::string& reason = {}) const;
  void set(std::shared_ptr<const VersionChoice> choice) noexcept { choice_ = std::move(choice); }
  /// ... where a reload made it live. One that is on trial and was refused before is no choice yet: until the trial is
  /// over, a restart begins with the release before it again.
  std::shared_ptr<const VersionChoice> after_reload(const Release& release, bool pinned) const;
  /// The trial of `live` is over. True where that ends the choice.
  bool settle(const Release& live) noexcept;

 private:
  template <class Change>
  void change(std::optional<uint64_t> decisions, const Change& change);
  void warn(const char* what, const std::string& failure) const;

  Releases& releases_;
  std::shared_ptr<const VersionChoice> choice_;  // under the mutex of the Releases
  std::mutex keeping_;                           // what is written last is what was decided last
  int kept_number_ = 0;                          // of the release whose contents were kept last; under keeping_
};

}  // namespace triage::policy
