#pragma once
#include "runtime/policy/host/runtime_core.h"
#include "runtime/policy/process.h"
#include "runtime/policy/releases/releases.h"
#include "runtime/policy/watch/notify.h"

#include <triage/runtime.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace triage::policy {

/// The thread behind a Watch. Changes of any kind lead to one thing: after a quiet moment, every policy of the
/// directory looks at its file, and a bundle at its bundle.json.
///
/// Three things together find every change. The kernel tells of what happens to folders and files that are watched
/// (inotify), at once. Twice a second all of them are watched anew by their paths: where a path leads elsewhere,
/// through a link, a renamed parent or a mount, the kernel gives another watch. And whatever is not watched, because
/// the user polls or the kernel refuses, is read and compared with what the last look saw. What could not be read for a
/// reason that passes is read again until it can.
class WatchCore final : public Watcher, public std::enable_shared_from_this<WatchCore> {
 public:
  /// Throws FileError where `dir` is no directory or cannot be watched.
  WatchCore(std::shared_ptr<RuntimeCore> runtime, const std::filesystem::path& dir, WatchOptions options);
  ~WatchCore();
  WatchCore(const WatchCore&) = delete;
  WatchCore& operator=(const WatchCore&) = delete;

  void start();
  /// Idempotent, and for any thread. Returns when the thread has ended, whoever stopped it, unless called from it. In a
  /// forked child, where the thread is not, it does nothing.
  void stop();
  bool stopped() const noexcept;
  /// Asks for a look at all files, without waiting for it.
  void look_again() override;
  /// Throws InputError where it was stopped, on the watching thread, and in a forked child.
  void rescan();

 private:
  using Clock = std::chrono::steady_clock;
  struct DirectoryIdentity {  // of a directory: its path may come to name another one
    uint64_t device = 0, inode = 0;
    friend bool operator==(const DirectoryIdentity&, const DirectoryIdentity&) = default;
  };

  void loop();
  void wait_for_change();
  bool asked() const;  // to stop or to look
  void log(LogLevel level, const std::string& text) const;
  void scan_or_tell(bool forced);
  void scan(bool forced);
  void attach();
  void follow(Releases& releases);
  void tell_change(Releases& releases, Reloads::Change change);
  bool is_fresh(const std::filesystem::path& file) const;
  bool being_written(const Releases& releases) const;
  void tell_new_files();
  bool watch_places();
  void follow_all(bool forced);
  std::vector<std::shared_ptr<Releases>> followed();
  std::set<std::filesystem::path> places();
  std::optional<std::set<std::filesystem::path>> candidates() const;
  std::string news();
  std::chrono::milliseconds interval() const;
  std::optional<DirectoryIdentity> identity() const;
  void tell(WatchEvent event);
  bool polling() const { return options_.poll_interval.count() > 0; }

  const Process process_;  // in another one, what follows is left as it is
  const std::shared_ptr<RuntimeCore> runtime_;
  const std::filesystem::path shown_;  // as the user gave it
  const std::filesystem::path dir_;    // absolute
  WatchOptions options_;               // on_event: of the watching thread alone
  Notifier notifier_;

  // Of the watching thread alone:
  std::optional<DirectoryIdentity> attached_;  // the directory that is watched; empty while it is gone
  std::set<std::filesystem::path> known_;      // files that were told of, or were there at the start
  std::set<std::weak_ptr<Releases>, std::owner_less<>> followed_;
  std::string last_failures_;
  bool blind_ = false;      // the kernel does not watch all of it
  bool unsettled_ = false;  // the last look left out a file that was being written
  bool put_off_ = false;    // ... or could not read one for a passing reason

  mutable std::mutex mutex_;  // what follows
  std::condition_variable done_;
  uint64_t wanted_looks_ = 0, finished_looks_ = 0;
  uint64_t forced_looks_ = 0;  // up to here: look at every file, settled or not
  bool stopping_ = false, finished_ = false;
  std::thread thread_;          // whoever joins it takes it
  std::thread::id watching_{};  // its id, also then; that of no thread before `start`
  std::shared_ptr<const void> exit_;
};

}  // namespace triage::policy
