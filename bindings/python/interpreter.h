#pragma once

/// Python's lock and its end, seen from destructors. The functions are looked up: nothing here is compiled against
/// Python.
namespace triage::python {

/// While one lives, this thread does not hold the interpreter's lock. A thread of triage that frees a tensor which
/// Python knows waits for the lock; who waits for that thread must not hold it. Methods need none of this: LibTorch
/// releases the lock for them.
class WithoutLock {
 public:
  WithoutLock() noexcept;
  ~WithoutLock();
  WithoutLock(const WithoutLock&) = delete;
  WithoutLock& operator=(const WithoutLock&) = delete;

 private:
  void* thread_state_ = nullptr;
};

/// The interpreter ends: a thread that asks for its lock never comes back.
bool is_finalizing() noexcept;

}  // namespace triage::python
