#pragma once
#include "runtime/capture/waiting.h"
#include "runtime/policy/files/kept_files.h"
#include "runtime/policy/files/not_now.h"

#include <triage/runtime.h>

#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace triage::policy {

class RuntimeCore;

/// What a policy and a bundle have in common: it is changed by one thread at a time, follows what is on the disk unless another version was
/// chosen, keeps for a restart what is live, and says why the last change was not taken over.
class Reloadable {
 public:
  Reloadable(const Reloadable&) = delete;
  Reloadable& operator=(const Reloadable&) = delete;

  /// What happened in a call, once: the version that was live failed, and another is.
  struct Reversal {
    int version;  // that is live again
    LoadFailure failure;
  };
  std::optional<Reversal> take_reversal();
  enum class FileChange : uint8_t { unchanged, swapped, refused, deleted, restored };
  /// Whether the last look could not read, or take up, what is on the disk for a passing reason: a Watch looks again
  /// soon.
  bool is_put_off() const noexcept { return put_off_; }

  const std::string& name() const noexcept { return name_; }
  const std::string& path() const noexcept { return path_; }
  /// Whose changes are taken up. Absolute; empty where there is none.
  const std::filesystem::path& file() const noexcept { return file_; }
  RuntimeCore& runtime() const noexcept { return *runtime_; }

 protected:
  /// `what`: "policy" or "bundle", for messages. `path` is as the user gave it.
  Reloadable(const char* what, std::shared_ptr<RuntimeCore> runtime, std::string path, std::filesystem::path file);
  virtual ~Reloadable() = default;

  /// One reload, rollback or pin at a time. A function of the host that a script calls while it is loaded would wait for itself, or
  /// for a thread that waits for this one; that throws InputError.
  class Changing {
   public:
    explicit Changing(Reloadable& one);
    ~Changing();
    Changing(const Changing&) = delete;
    Changing& operator=(const Changing&) = delete;

   private:
    Reloadable& one_;
  };

  /// With the fields `what` and `path`, and those of `error` and `version` that there are.
  virtual void log(LogLevel level, const std::string& text, const std::string& error = {}, int version = 0) const;
  /// True where this is news: not what was noted last.
  bool note_failure(const std::string& message, const Source& source);
  /// Where another version is live because the one on the disk failed in calls. `place`: the file that the failure names.
  bool note_failure_of_choice(const std::string& place);
  /// True where there was one.
  virtual bool clear_failure();
  /// Takes up what is on the disk now, with changing_. May throw NotNow.
  virtual FileChange follow_disk(bool retry) = 0;
  virtual void count_refusal() = 0;
  /// follow_disk, which tells what it cannot read now, and forgets that when it can.
  FileChange look_at_disk(bool retry);
  /// `refused` where this is news.
  FileChange put_off(const std::exception& error);
  /// For a look that could read what is on the disk: where what could not be read before is still the last error, it is
  /// what it was before that. True where there is none then.
  bool end_put_off();
  bool pinned() const;
  std::shared_ptr<const Choice> choice() const;
  void keep_choice();
  void keep_contents(int number, const Contents& contents);

  const char* const what_;
  const std::shared_ptr<RuntimeCore> runtime_;
  const std::string path_;
  const std::filesystem::path file_;
  std::string name_;  // fixed by load_first

  capture::OwnedMutex changing_;       // may be held for long; taken by Changing, and what follows is under it
  bool refused_ = false;               // what is on the disk was
  std::atomic<bool> put_off_ = false;  // ... or it could not be read; written under changing_

  int kept_number_ = 0;  // of the version whose contents were kept last; under keeping_
  std::mutex keeping_;   // one version, and one choice, after the other is kept for a restart

  mutable std::mutex mutex_;  // short: what follows, and replacing what is live
  std::optional<LoadFailure> last_error_;
  std::string put_off_message_;                 // of `put_off`; empty: nothing is put off
  std::optional<LoadFailure> error_before_it_;  // what the last error was then
  std::optional<Reversal> reversal_;
  bool pinned_ = false;
  std::shared_ptr<const Choice> choice_;  // as it is to be after a restart; null: the disk is followed
};

}  // namespace triage::policy
