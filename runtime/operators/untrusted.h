#pragma once
#include <chrono>
#include <optional>
#include <string>

#include "runtime/operators/call_bounds.h"
#include "runtime/operators/contract.h"

namespace triage::operators {

/// While alive on a thread, graphs that run there step by step hold calls of operators to their contracts: for graphs
/// of scripts and files that are not trusted. A call inside a call takes over what is outside of it at its end.
class Untrusted {
 public:
  using Terms = operators::Terms;
  explicit Untrusted(const Terms* terms) noexcept : outer_(call_bounds.terms) { call_bounds.terms = terms; }
  ~Untrusted() { call_bounds.terms = outer_; }
  Untrusted(const Untrusted&) = delete;
  Untrusted& operator=(const Untrusted&) = delete;

  /// Null where what runs is trusted.
  static const Terms* current() noexcept { return call_bounds.terms; }

 private:
  const Terms* outer_;
};

/// Why a call may not be made under these terms, or may take longer than the caller waits, as the end of a sentence;
/// nothing where it may be made.
std::optional<std::string> refusal(const Contract& contract, const c10::FunctionSchema& schema,
                                   c10::ArrayRef<c10::IValue> arguments, const Untrusted::Terms& terms,
                                   const std::optional<std::chrono::steady_clock::time_point>& deadline = {});

}  // namespace triage::operators
