#include "runtime/policy/candidates/thread.h"

#include <atomic>
#include <exception>
#include <utility>

#include "runtime/messages/start_thread.h"
#include "runtime/policy/at_exit.h"
#include "runtime/policy/process.h"

namespace triage::policy {

/// The thread may outlive its CandidateThread, where a task ends that.
struct CandidateThreadState {
  const Process process{};  // in another one, what follows is left as it is
  std::mutex mutex;
  std::condition_variable wake;
  std::list<CandidateThread::Task> tasks, calls;
  bool closed = false;
  std::thread thread;
  std::atomic<bool> running{false};
  std::atomic<size_t> waiting{0}, waiting_bytes{0};
};

CandidateThread::CandidateThread() : state_(std::make_shared<CandidateThreadState>()) {}

CandidateThread::~CandidateThread() { close(); }

bool CandidateThread::start() {
  if (state_->process.is_another()) return false;
  const std::lock_guard lock(state_->mutex);
  if (state_->closed) return false;
  if (!state_->thread.joinable()) {
    exit_ = at_exit([weak = std::weak_ptr(state_)] {
      if (const auto state = weak.lock()) close(*state);
    });
    state_->thread = messages::start_thread([state = state_] { loop(state); }, "for candidates",
                                            "The live version goes on to answer all calls");
  }
  state_->running = true;
  return true;
}

void CandidateThread::loop(const std::shared_ptr<CandidateThreadState>& state) {
  std::unique_lock lock(state->mutex);
  while (true) {
    state->wake.wait(lock, [&] { return state->closed || !state->tasks.empty() || !state->calls.empty(); });
    if (state->closed) return;
    auto& queue = state->tasks.empty() ? state->calls : state->tasks;
    Task task = std::move(queue.front());
    queue.pop_front();
    lock.unlock();
    try {
      task();
    } catch (const std::exception&) {
    }
    task = nullptr;  // what it holds goes here, without the lock
    lock.lock();
  }
}

bool CandidateThread::add(Task task, bool call) {
  if (state_->process.is_another()) return false;
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->closed || !state_->thread.joinable()) return false;
    (call ? state_->calls : state_->tasks).push_back(std::move(task));
  }
  state_->wake.notify_one();
  return true;
}

CandidateThread::Room CandidateThread::reserve(size_t bytes, size_t most_calls, size_t most_bytes) noexcept {
  Room room;
  if (!state_->running.load(std::memory_order_relaxed)) return room;
  const bool full = state_->waiting.fetch_add(1, std::memory_order_relaxed) >= most_calls;
  const bool too_large = state_->waiting_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes > most_bytes;
  room.state_ = state_;
  room.bytes_ = bytes;
  if (full || too_large) return Room();  // and `room` gives back what it took
  return room;
}

void CandidateThread::close() noexcept { close(*state_); }

void CandidateThread::close(CandidateThreadState& state) noexcept {
  if (state.process.is_another()) return;
  std::list<Task> tasks, calls;
  std::thread thread;
  {
    const std::lock_guard lock(state.mutex);
    state.closed = true;
    state.running = false;
    tasks.swap(state.tasks);
    calls.swap(state.calls);
    thread = std::move(state.thread);
  }
  state.wake.notify_all();
  if (!thread.joinable()) return;
  if (thread.get_id() == std::this_thread::get_id())
    thread.detach();
  else
    thread.join();
}

CandidateThread::Room::Room(Room&& other) noexcept
    : state_(std::move(other.state_)), bytes_(std::exchange(other.bytes_, 0)) {}

CandidateThread::Room& CandidateThread::Room::operator=(Room&& other) noexcept {
  std::swap(state_, other.state_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

CandidateThread::Room::~Room() {
  if (!state_) return;
  state_->waiting.fetch_sub(1, std::memory_order_relaxed);
  state_->waiting_bytes.fetch_sub(bytes_, std::memory_order_relaxed);
}

}  // namespace triage::policy
