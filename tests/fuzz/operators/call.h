#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <time.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

/// One call of an operator with synthetic arguments, and what is held against it.
namespace triage::fuzz {

using Arguments = c10::ArrayRef<c10::IValue>;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

/// An operator, and what is promised of calls of it.
struct Target {
  std::string name;  // "aten::add.Tensor"
  c10::OperatorHandle op;
  std::function<std::optional<std::string>(Arguments)> violation;
  std::function<int64_t(Arguments)> allocation_bound;  // in bytes
  std::function<int64_t(Arguments)> time_bound;        // in nanoseconds
};

enum class Outcome : uint8_t {
  none,
  outside,        // of the contract: not called
  beyond_budget,  // within the contract, but more bytes or time than any policy has: not called
  threw,
  succeeded,
  died
};

struct CallResult {
  Outcome outcome = Outcome::none;
  uint64_t digest = 0;  // of the results, or of the error's text
  uint64_t nanoseconds = 0;
  std::string text;   // of the error
  std::string fault;  // empty: all is well
};

/// Made again by the same numbers, with the same target.
struct CallId {
  uint64_t seed = 0;
  int64_t index = 0;
};

/// What this clock of processors says: of the thread, or of the process with all its threads.
uint64_t cpu_nanoseconds(clockid_t clock);

/// The arguments of a call: within the contract if some are found soon.
torch::jit::Stack arguments_of(const Target& target, CallId id, std::optional<std::string>& violation);

/// Makes the call in this process, which may not survive it. The fenced allocator must be installed.
CallResult make_call(const Target& target, CallId id);

}  // namespace triage::fuzz
