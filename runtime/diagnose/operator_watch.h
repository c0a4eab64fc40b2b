#pragma once
#include <ATen/core/operator_name.h>
#include <ATen/record_function.h>

#include <cstddef>
#include <functional>
#include <optional>

namespace triage::diagnose {

/// While it lives, it is told of the operators that this thread calls: not of those inside of others, and not of those
/// that it calls itself when it is told. One at a time on a thread.
class OperatorWatch {
 public:
  /// The number of the call, for the end of it; nothing: the end is not told.
  using Begun = std::function<std::optional<size_t>(const at::RecordFunction& call, const c10::OperatorName& name)>;
  using Ended = std::function<void(size_t number, const at::RecordFunction& call)>;

  OperatorWatch(Begun begun, Ended ended);
  ~OperatorWatch();
  OperatorWatch(const OperatorWatch&) = delete;
  OperatorWatch& operator=(const OperatorWatch&) = delete;

 private:
  static std::unique_ptr<at::ObserverContext> on_begin(const at::RecordFunction& call);
  static void on_end(const at::RecordFunction& call, at::ObserverContext* context);

  Begun begun_;
  Ended ended_;
  int depth_ = 0;
  at::CallbackHandle handle_ = 0;
  at::RecordFunctionGuard enabled_{true};
};

}  // namespace triage::diagnose
