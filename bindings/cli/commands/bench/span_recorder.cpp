#include "bindings/cli/commands/bench/span_recorder.h"

#include <chrono>
#include <memory>
#include <utility>

#include "runtime/messages/profiling/profiler_spans.h"

namespace triage::bench {
namespace {

SpanRecorder* current = nullptr;  // one at a time, and its callbacks, which are plain functions, are of one thread

}  // namespace

struct SpanRecorder::SpanContext final : at::ObserverContext {
  explicit SpanContext(size_t index) : index(index) {}
  size_t index;
};

SpanRecorder::SpanRecorder(std::function<Source()> line) : line_(std::move(line)) {
  constexpr size_t usual = 4096;
  spans_.reserve(usual);
  current = this;
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&SpanRecorder::opened, &SpanRecorder::closed));
}

SpanRecorder::~SpanRecorder() {
  at::removeCallback(handle_);
  current = nullptr;
}

std::unique_ptr<at::ObserverContext> SpanRecorder::opened(const at::RecordFunction& function) {
  const int64_t begin = now();
  auto place = std::make_unique<SpanContext>(current->spans_.size());
  Span& span = current->spans_.emplace_back();
  span.name = function.name();
  span.is_operator = function.scope() != at::RecordScope::USER_SCOPE;
  span.parent = current->innermost_;
  if (span.parent < 0 && current->line_) span.line = current->line_();
  current->innermost_ = static_cast<int64_t>(place->index);
  span.begin = begin;
  span.ready = now();
  return place;
}

void SpanRecorder::closed(const at::RecordFunction&, at::ObserverContext* context) {
  Span& span = current->spans_[static_cast<SpanContext*>(context)->index];
  span.end = now();
  current->innermost_ = span.parent;
}

SpansOn::SpansOn() : before_(messages::profiler_spans()) { messages::set_profiler_spans(true); }
SpansOn::~SpansOn() { messages::set_profiler_spans(before_); }

}  // namespace triage::bench
