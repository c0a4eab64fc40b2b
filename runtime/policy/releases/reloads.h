#pragma once
#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/capture/waiting.h"
#include "runtime/policy/files/contents.h"
#include "runtime/policy/releases/release.h"

#include <triage/runtime.h>

namespace triage::policy {

class Releases;

/// Takes up what is on the disk, and what the host gives in its place: one reload at a time. Whatever goes wrong, the
/// live release stays live, and Releases::last_error says why.
class Reloads {
 public:
  explicit Reloads(Releases& releases) : releases_(releases) {}

  /// The first release: what was pinned or rolled back to before a restart, else what is on the disk, else what was
  /// good last. Throws Error.
  void load_first();
  enum class Change : uint8_t { unchanged, swapped, refused, deleted, restored, overtaken };
  /// Looks at the disk now, after `first`. `retry`: it takes up also what was refused before. Throws InputError where a
  /// script that is being loaded asks for it.
  Change follow(bool retry, const std::function<void()>& first = {});
  /// Takes up a source of the host. It waits for a reload that is running.
  Change replace(std::string source);
  /// Notes what is on the disk without taking it up. Whether it is another thing than at the last look.
  bool observe_disk();
  /// What is on the disk now, as compared with the last look; nothing where that cannot be said now.
  struct DiskNow {
    std::optional<std::string> text;
    bool as_seen;
  };
  std::optional<DiskNow> disk_now() const;

  /// Whether the last look could not read, or take up, what is on the disk for a passing reason: it is to be looked at
  /// again soon.
  bool is_put_off() const noexcept { return put_off_; }
  bool is_deleted() const noexcept { return deleted_; }
  /// What was on the disk at the last look, taken up or not.
  std::optional<Contents> seen() const;
  /// The names of the files that it read, or looked for.
  std::vector<std::string> files_seen() const;
  void observe(std::optional<Contents> contents);
  /// By the reload that is running: what it read.
  void observe_read(Contents contents);
  void note_deleted(bool deleted) noexcept { deleted_ = deleted; }
  bool is_as_seen(const std::string& text, const std::optional<Contents>& seen) const;
  bool is_running() const noexcept { return running_; }
  /// The reload that is running is of no use any more: its script stops at its next look at its budgets.
  void cancel() noexcept { cancelled_ = true; }

  // With the mutex of the Releases:
  const std::optional<Contents>& observed_locked() const noexcept { return seen_; }
  /// True where it is another thing than at the last look.
  bool observe_locked(std::optional<DiskNow> now);
  /// What comes back to the disk is followed, also with the bytes that it had.
  void forget_deleted() noexcept {
    if (deleted_) seen_.reset();
  }

 private:
  class RunningReload;

  std::optional<Prepared> first_chosen(std::optional<VersionChoice>& chosen);
  Prepared first_kept(const Error& error);
  void retry_after_restart();
  Change look(bool retry);
  Change follow_disk(bool retry);
  Change follow_deletion(bool retry);
  Change adopt(std::string text, bool retry, bool on_disk);
  bool make_live(const std::string& text, bool on_disk);
  Change refuse(const std::exception& error, bool is_news, bool on_disk);
  std::string shadow_after(const std::exception& error);
  bool is_overtaken() const noexcept;
  Change report_overtaken();
  void report_refusal(LogLevel level, const std::string& text, const std::string& reason, bool on_disk = true) const;
  Change put_off(const std::exception& error);
  bool end_put_off();
  bool note_failure_of_choice();
  std::optional<std::string> text_now() const;
  const ChangeLog& log() const noexcept;

  Releases& releases_;
  capture::OwnedMutex reloading_;
  std::atomic<bool> running_ = false, cancelled_ = false;
  std::atomic<bool> put_off_ = false;
  std::atomic<bool> deleted_ = false;  // at the last look there was nothing on the disk
  // Under reloading_:
  bool refused_ = false;  // what is on the disk was
  /// Releases::decisions when a reload of the disk began; a source that the host gives is overtaken by nothing.
  std::optional<uint64_t> began_;
  uint64_t looks_at_begin_ = 0;  // host_looks_ then
  // Under the mutex of the Releases:
  std::optional<Contents> seen_;
  uint64_t host_looks_ = 0;                     // by decisions
  std::string put_off_message_;                 // of `put_off`; empty: nothing is put off
  std::optional<LoadFailure> error_before_it_;  // what the last error was then
};

/// What a host is told.
Reload as_reload(Reloads::Change change) noexcept;

}  // namespace triage::policy
