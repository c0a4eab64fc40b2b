#include "runtime/operators/untrusted.h"

#include <fmt/format.h>

namespace triage::operators {

std::optional<std::string> refusal(const Contract& contract, const c10::FunctionSchema& schema,
                                   c10::ArrayRef<c10::IValue> arguments, const Untrusted::Terms& terms,
                                   const std::optional<std::chrono::steady_clock::time_point>& deadline) {
  if (auto wrong = violation(contract, schema, arguments)) return wrong;
  if (terms.bytes > 0)
    if (const int64_t bytes = allocation_bound(contract, schema, arguments); bytes > terms.bytes)
      return fmt::format("it may take {} MiB of memory; a call of what is not trusted may take {} MiB", bytes >> 20,
                         terms.bytes >> 20);
  if (!deadline) return std::nullopt;
  const std::chrono::nanoseconds takes(time_bound(contract, schema, arguments));
  if (takes <= std::chrono::milliseconds(10) || takes <= *deadline - std::chrono::steady_clock::now())
    return std::nullopt;
  return fmt::format("it may take {:.3g} s, which is past the deadline of the call",
                     std::chrono::duration<double>(takes).count());
}

}  // namespace triage::operators
