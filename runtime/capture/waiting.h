#pragma once
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace triage::capture {

/// What one thread has, and others wait for.
class HeldResource {
 public:
  virtual std::thread::id holder() const noexcept = 0;

 protected:
  ~HeldResource() = default;
};

/// The work of one thread, for whose end others wait.
class HeldBy final : public HeldResource {
 public:
  explicit HeldBy(std::thread::id holder) : holder_(holder) {}
  std::thread::id holder() const noexcept override { return holder_; }

 private:
  const std::thread::id holder_;
};

/// While alive, this thread waits for what `wanted` is held by. Policies call each other through functions of the host,
/// so a thread that holds one may ask for another: a cycle of such waits would never end. Who would close it gets a
/// PolicyError that names all that is waited for. Only threads that really wait come here; nobody pays for it who does
/// not.
class Waiting {
 public:
  /// `name` of what is wanted: "policy 'repair'". `wanted` lives as long as this.
  Waiting(const HeldResource& wanted, std::string name);
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
};

/// A mutex that is held for long, by calls and reloads that may ask for others.
class OwnedMutex final : public HeldResource {
 public:
  using Deadline = std::optional<std::chrono::steady_clock::time_point>;

  /// False where `deadline` passed first. Throws PolicyError for a cycle of waits; `describe` returns the name for
  /// that, and is called only if another thread holds it.
  template <class Describe>
  bool lock(const Deadline& deadline, const Describe& describe) {
    if (!mutex_.try_lock() && !wait(deadline, describe())) return false;
    note_locked();
    return true;
  }
  void unlock() noexcept;
  bool is_held_here() const noexcept { return holder() == std::this_thread::get_id(); }
  std::thread::id holder() const noexcept override { return holder_.load(std::memory_order_relaxed); }

 private:
  bool wait(const Deadline& deadline, std::string name);
  void note_locked() noexcept;

  std::timed_mutex mutex_;
  std::atomic<std::thread::id> holder_{};  // written by who holds it
};

}  // namespace triage::capture
