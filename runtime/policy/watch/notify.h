#pragma once
#include <chrono>
#include <filesystem>
#include <map>
#include <set>
#include <string>

namespace triage::policy {

/// What the kernel tells of changes in directories (inotify), or a plain alarm clock where it is not asked to. One
/// thread waits; any thread may wake it.
class Notifier {
 public:
  /// `use_kernel` false: `wait` only ever wakes by timeout and `wake`. Throws FileError where the kernel refuses.
  explicit Notifier(bool use_kernel);
  ~Notifier();
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;

  /// Watches exactly these directories from now on; one that is given again after `forget` is found again by its path.
  /// Returns what could not be watched, and why; empty: all are.
  std::string watch(const std::set<std::filesystem::path>& dirs);
  void forget(const std::filesystem::path& dir);

  /// Waits until something changed (true), or was woken or timed out (false). Several changes count as one.
  bool wait(std::chrono::milliseconds timeout);
  void wake();
  /// For the waiting thread, when it waits no more: the kernel gives a user few of what `watch` needs.
  void close();

 private:
  bool drain();

  int inotify_ = -1;  // -1: the kernel is not asked
  int alarm_ = -1;    // eventfd
  std::map<std::filesystem::path, int> watches_;
};

}  // namespace triage::policy
