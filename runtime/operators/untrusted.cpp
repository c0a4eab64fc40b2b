#include "runtime/operators/untrusted.h"

#include <fmt/format.h>

namespace triage::operators {

std::optional<std::string> refusal(const Contract& contract, const c10::FunctionSchema& schema,
                                   c10::ArrayRef<c10::IValue> arguments, const Untrusted::Terms& terms) {
  if (auto wrong = violation(contract, schema, arguments)) return wrong;
  if (terms.bytes <= 0) return std::nullopt;
  const int64_t bytes = allocation_bound(contract, schema, arguments);
  if (bytes <= terms.bytes) return std::nullopt;
  return fmt::format("it may take {} MiB of memory; a call of what is not trusted may take {} MiB", bytes >> 20,
                     terms.bytes >> 20);
}

}  // namespace triage::operators
