#pragma once
#include "runtime/policy/core.h"
#include "runtime/policy/watch/notify.h"

#include <triage/runtime.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

namespace triage::policy {

/// The thread behind a Watch. Changes of any kind lead to one thing: after a quiet moment, every policy of the
/// directory looks at its file, and a bundle at its bundle.json. The *directory* is watched, never a file: that survives files replaced by rename and
/// directories of symbolic links that are swapped as a whole; directories that symbolic links lead to are watched too.
class WatchCore : public std::enable_shared_from_this<WatchCore> {
 public:
  /// Throws FileError where `dir` is no directory or cannot be watched.
  WatchCore(std::shared_ptr<RuntimeCore> runtime, const std::filesystem::path& dir, WatchOptions options);
  ~WatchCore();
  WatchCore(const WatchCore&) = delete;
  WatchCore& operator=(const WatchCore&) = delete;

  void start();
  /// Idempotent, and for any thread. Returns when the thread has ended, whoever stopped it, unless called from it.
  void stop();
  bool stopped() const noexcept;
  /// Asks for a look at all files, without waiting for it.
  void look_again();
  /// Throws InputError where it was stopped, and on the watching thread.
  void rescan();

 private:
  using Clock = std::chrono::steady_clock;
  struct Identity {  // of a directory: its path may come to name another one
    uint64_t device = 0, inode = 0;
    friend bool operator==(const Identity&, const Identity&) = default;
  };

  void loop();
  void wait_for_change();
  bool asked() const;  // to stop or to look
  void log(LogLevel level, const std::string& text) const;
  void scan_or_tell(bool forced);
  void scan(bool forced);
  void attach();
  void follow(PolicyCore& policy);
  void follow(BundleCore& bundle);
  void tell_change(PolicyCore::FileChange change, const std::string& path, int number,
                   const std::optional<LoadFailure>& failure, std::string note);
  bool is_fresh(const std::filesystem::path& file) const;
  bool being_written(const PolicyCore& policy) const;
  void tell_new_files();
  bool watch_directories();
  void follow_all(bool forced);
  std::vector<std::shared_ptr<PolicyCore>> policies() const;
  std::vector<std::shared_ptr<BundleCore>> bundles() const;
  std::set<std::filesystem::path> candidates() const;
  std::map<std::filesystem::path, std::string> fingerprint() const;
  std::optional<Identity> identity() const;
  void tell(WatchEvent event);
  bool polling() const { return options_.poll_interval.count() > 0; }

  const std::shared_ptr<RuntimeCore> runtime_;
  const std::filesystem::path shown_;  // as the user gave it
  const std::filesystem::path dir_;    // absolute
  WatchOptions options_;               // on_event: of the watching thread alone
  Notifier notifier_;

  // Of the watching thread alone:
  std::optional<Identity> attached_;                   // the directory that is watched; empty while it is gone
  std::set<std::filesystem::path> known_;              // files that were told of, or were there at the start
  std::map<std::filesystem::path, std::string> seen_;  // polling: what was there at the last look
  std::string last_trouble_;
  std::set<std::filesystem::path> watched_;
  bool unsettled_ = false;  // the last look left out a file that was being written

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
