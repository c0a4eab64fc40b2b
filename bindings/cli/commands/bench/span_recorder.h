#pragma once
#include <ATen/record_function.h>
#include <triage/error.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace triage::bench {

/// Nanoseconds, steady clock.
inline int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// While it lives, keeps what LibTorch tells of the operators and spans of this thread (at::RecordFunction). One at a
/// time.
class SpanRecorder {
 public:
  struct Span {
    std::string name;
    bool is_operator = false;    // of ATen or triage; else a span that somebody opened
    int64_t begin = 0, end = 0;  // nanoseconds, steady clock; `end` is 0 while it is open
    int64_t parent = -1;         // an index
    int64_t ready = 0;           // from here on, without what its recording took
    Source line;                 // of outermost spans, what `line` said
  };
  /// `line` is asked at the start of each outermost span.
  explicit SpanRecorder(std::function<Source()> line = {});
  ~SpanRecorder();
  SpanRecorder(const SpanRecorder&) = delete;
  SpanRecorder& operator=(const SpanRecorder&) = delete;

  /// In the order in which they began.
  const std::vector<Span>& spans() const { return spans_; }

 private:
  struct SpanContext;
  static std::unique_ptr<at::ObserverContext> opened(const at::RecordFunction& function);
  static void closed(const at::RecordFunction& function, at::ObserverContext* context);

  std::function<Source()> line_;
  std::vector<Span> spans_;
  int64_t innermost_ = -1;
  at::CallbackHandle handle_;
};

/// The spans of triage are on while it lives, whatever the process has set.
class SpansOn {
 public:
  SpansOn();
  ~SpansOn();
  SpansOn(const SpansOn&) = delete;
  SpansOn& operator=(const SpansOn&) = delete;

 private:
  bool before_;
};

}  // namespace triage::bench
