#include "runtime/diagnose/operator_watch.h"

#include <utility>

namespace triage::diagnose {
namespace {

struct WatchedCall final : at::ObserverContext {
  std::optional<size_t> number;  // an operator inside of another has none
};

thread_local OperatorWatch* current_watch = nullptr;  // callbacks of LibTorch are plain functions

/// While alive, operators count as inside of another.
struct Inside {
  explicit Inside(int& depth) : depth(depth) { ++depth; }
  ~Inside() { --depth; }
  int& depth;
};

}  // namespace

OperatorWatch::OperatorWatch(Begun begun, Ended ended) : begun_(std::move(begun)), ended_(std::move(ended)) {
  current_watch = this;
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(on_begin, on_end)
                                           .needsInputs(true)
                                           .needsOutputs(true)
                                           .scopes({at::RecordScope::FUNCTION}));
}

OperatorWatch::~OperatorWatch() {
  at::removeCallback(handle_);
  current_watch = nullptr;
}

std::unique_ptr<at::ObserverContext> OperatorWatch::on_begin(const at::RecordFunction& call) {
  auto watched = std::make_unique<WatchedCall>();
  OperatorWatch& watch = *current_watch;
  if (watch.depth_++ > 0) return watched;
  const auto name = call.operator_name();
  const Inside inside(watch.depth_);
  if (name) watched->number = watch.begun_(call, *name);
  return watched;
}

void OperatorWatch::on_end(const at::RecordFunction& call, at::ObserverContext* context) {
  OperatorWatch& watch = *current_watch;
  --watch.depth_;
  const Inside inside(watch.depth_);
  if (const auto number = static_cast<WatchedCall*>(context)->number) watch.ended_(*number, call);
}

}  // namespace triage::diagnose
