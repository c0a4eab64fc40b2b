#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <string>

namespace at {
struct RecordFunction;
}

/// Policies, functions, graphs, groups and kernels as spans of LibTorch's own profiler, beside ATen's operators. For
/// the process; at first what TRIAGE_PROFILER_SPANS says. Asking LibTorch whether anybody listens takes as long as a
/// tenth of a small call, so only a process that wants spans asks: what is off costs one load. Thread-safe.
namespace triage::messages {

enum class SpansState : uint8_t { unread, off, on };
inline std::atomic<SpansState> spans_state{SpansState::unread};  // unread: TRIAGE_PROFILER_SPANS was not looked at yet
bool read_spans_environment() noexcept;
inline bool profiler_spans() noexcept {
  const SpansState state = spans_state.load(std::memory_order_relaxed);
  if (state == SpansState::off) [[likely]]
    return false;
  return state == SpansState::on || read_spans_environment();
}
void set_profiler_spans(bool on) noexcept;

/// What goes on while it lives, under the name "triage::" and what `name()` returns, which is asked only where a
/// profiler listens.
class ProfilerSpan {
 public:
  template <class Name>
  explicit ProfilerSpan(const Name& name) noexcept {
    if (profiler_spans()) [[unlikely]]
      span_ = open(name);
  }
  ~ProfilerSpan() {
    if (span_) [[unlikely]]
      end(span_);
  }
  ProfilerSpan(const ProfilerSpan&) = delete;
  ProfilerSpan& operator=(const ProfilerSpan&) = delete;

 private:
  /// Apart from the functions that have spans, which stay as small as they are without.
  template <class Name>
  [[gnu::noinline, gnu::cold]] static at::RecordFunction* open(const Name& name) noexcept {
    at::RecordFunction* const span = begin();
    if (!span) return nullptr;
    try {
      enter(*span, name());
    } catch (const std::exception&) {  // no memory for a name
    }
    return span;
  }
  static at::RecordFunction* begin() noexcept;  // null where nobody listens
  static void enter(at::RecordFunction& span, const std::string& name);
  static void end(at::RecordFunction* span) noexcept;

  at::RecordFunction* span_ = nullptr;
};

}  // namespace triage::messages
