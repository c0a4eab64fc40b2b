#pragma once
#include <optional>

#include "runtime/backends/fused/lowering/loop_builder.h"

namespace triage::fused {

/// What is known of a real value without a look at it: it lies between these, or is NaN, which it is where `nan_of` is.
struct KnownBounds {
  double low, high;
  Ref nan_of;
  bool are_finite() const;
};
KnownBounds known_bounds(const LoopBuilder& loops, Ref value);

/// Whether a condition on numbers that stand in the graph holds; nothing where it is no such.
std::optional<bool> known_condition(const LoopBuilder& loops, Ref condition);

/// A condition that holds where this one does, and needs no value whose bounds decide it.
Ref decided_by_bounds(LoopBuilder& loops, Ref condition);

}  // namespace triage::fused
