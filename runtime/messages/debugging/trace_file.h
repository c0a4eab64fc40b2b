#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

/// The trace: what captures, compilations, reloads and flags there were, as lines of JSON for `triage report`. Each
/// process writes one file, `trace-<time>-pid_<pid>.jsonl`, from its first event on. What is off costs one load.
namespace triage::messages {

/// The first line of a file says which format the others have. A reader takes this one only.
constexpr int trace_format = 1;

enum class TraceState : uint8_t { unread, off, on };
inline std::atomic<TraceState> trace_state{TraceState::unread};  // unread: TRIAGE_TRACE was not looked at yet
bool read_trace_environment() noexcept;
inline bool trace_on() noexcept {
  const TraceState state = trace_state.load(std::memory_order_relaxed);
  return state == TraceState::on || (state == TraceState::unread && read_trace_environment());
}

/// Where the files go; empty: nowhere. At first TRIAGE_TRACE. Thread-safe.
std::string trace_dir();
void set_trace_dir(const std::string& path);

/// One line: fields in the order in which they are added. Text is made printable.
class TraceEvent {
 public:
  using Clock = std::chrono::steady_clock;

  explicit TraceEvent(std::string_view event);
  TraceEvent& text(std::string_view name, std::string_view value);
  TraceEvent& number(std::string_view name, int64_t value);
  /// `value` is JSON.
  TraceEvent& json(std::string_view name, std::string_view value);
  /// Of the newest graph of that name, where it is not of the scope.
  TraceEvent& graph(const std::string& name);
  /// What went on from `begin` to now; other events have the time at which they are written.
  TraceEvent& since(Clock::time_point begin);

 private:
  friend class TraceFile;
  std::string json_;
  std::string graph_;
  Clock::time_point begin_ = Clock::now();
  bool spans_ = false;
};

/// Where the file cannot be written, or has reached its bound, one error is logged, and the process goes on without.
void write_trace(const TraceEvent& event) noexcept;
void give_up_trace(const std::string& reason) noexcept;

/// Writes what `make` returns, where the trace is on.
template <class Make>
void trace(const Make& make) noexcept {
  if (!trace_on()) return;
  try {
    write_trace(make());
  } catch (const std::exception& error) {
    give_up_trace(error.what());
  }
}

/// The text that functions of `file` are made of: once for each text of a file.
void trace_source(const std::string& file, std::string_view text) noexcept;

/// While it lives, events of this thread belong to a graph: a new one, or the newest of this name. At the end of that
/// of a new graph, an event has how long it took. Scopes nest. Nothing where the trace is off.
class TraceScope {
 public:
  TraceScope(const std::string& graph, bool is_new);
  explicit TraceScope(int64_t graph);  // `current` of an earlier scope
  static int64_t current();
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  int64_t outer_ = 0;
  bool active_ = false, is_new_ = false;
  TraceEvent::Clock::time_point begin_{};
};

}  // namespace triage::messages
