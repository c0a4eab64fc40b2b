#pragma once
#include "runtime/capture/sizes/size_origins.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <utility>
#include <vector>

/// Calls whose results nobody uses are left out of a graph. The script makes them, and may get an error from them,
/// which it may even catch: a graph without the call holds only where the call raises nothing.
namespace triage::capture {

struct Checks {
  enum class Of : uint8_t {
    nothing,  // the call succeeds for all tensors of these ranks and dtypes
    sizes,    // ... of these sizes
    values,   // nobody knows
  };
  Of of = Of::nothing;
  std::vector<std::pair<Extent, int64_t>> sizes;  // that decide, and what they are now; of unknown origin: all sizes do
  std::vector<std::pair<Extent, Extent>> same;    // sizes of inputs that must be equal
};

/// What the call checks of its arguments beyond what every replay of the capture has in common. `numbers_vary`: it
/// takes a number that may be another one in the next call.
Checks checks_of(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments, bool numbers_vary,
                 const SizeOrigins& origins);

}  // namespace triage::capture
