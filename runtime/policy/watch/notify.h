#pragma once
#include <chrono>
#include <filesystem>
#include <map>
#include <set>
#include <string>

namespace triage::policy {

/// What the kernel tells of changes of folders and files (inotify), or a plain alarm clock where it is not asked to.
/// One thread waits; any thread may wake it.
class Notifier {
 public:
  /// `use_kernel` false: `wait` only ever wakes by timeout and `wake`. Throws FileError where no descriptor is left.
  explicit Notifier(bool use_kernel);
  ~Notifier();
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;

  struct WatchResult {
    bool changed = false;  // something else lies at one of the places than at the last call, or they are others
    std::string failures;  // what could not be watched, and why; empty: all that is there is watched
  };
  /// Watches what lies at exactly these places, folders and files, from now on. A watch follows its file wherever that
  /// is moved: so all places are watched anew, which costs a call of the system each and gives the watch that there is,
  /// or another one where the place has come to name something else.
  WatchResult watch(const std::set<std::filesystem::path>& places);

  /// Waits until something changed (true), or was woken or timed out (false). Several changes count as one.
  bool wait(std::chrono::milliseconds timeout);
  void wake();
  /// For the waiting thread, when it waits no more: the kernel gives a user few of what `watch` needs.
  void close();

 private:
  bool drain();

  const bool use_kernel_;
  int inotify_ = -1;  // -1: the kernel is not asked, or refuses at the moment
  int alarm_ = -1;    // eventfd
  std::map<std::filesystem::path, int> watches_;
};

}  // namespace triage::policy
