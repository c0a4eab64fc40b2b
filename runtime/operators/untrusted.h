#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/operators/contract.h"

namespace triage::operators {

/// While alive on a thread, graphs that run there step by step hold calls of operators to their contracts: for graphs of scripts
/// and files that are not trusted. A call inside a call takes over what is outside of it at its end.
class Untrusted {
 public:
  struct Terms {
    int64_t bytes = int64_t{4} << 30;  // what one call may take, and what results that live at once hold; 0: any number
    bool captured =
        true;  // the calls ran within their contracts once: what sizes and numbers do not change is not asked again
  };
  explicit Untrusted(const Terms* terms) noexcept : outer_(current_) { current_ = terms; }
  ~Untrusted() { current_ = outer_; }
  Untrusted(const Untrusted&) = delete;
  Untrusted& operator=(const Untrusted&) = delete;

  /// Null where what runs is trusted.
  static const Terms* current() noexcept { return current_; }

 private:
  // Of the thread, because autograd runs the backward half of a graph, and a function of the host runs other graphs.
  inline static thread_local const Terms* current_ = nullptr;
  const Terms* outer_;
};

/// Why a call may not be made under these terms, or may take longer than the caller waits, as the end of a sentence; nothing where it
/// may be made.
std::optional<std::string> refusal(const Contract& contract, const c10::FunctionSchema& schema,
                                   c10::ArrayRef<c10::IValue> arguments, const Untrusted::Terms& terms,
                                   const std::optional<std::chrono::steady_clock::time_point>& deadline = {});

}  // namespace triage::operators
