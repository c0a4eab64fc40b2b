#pragma once
#include <optional>

#include "runtime/backends/fused/loop_ir.h"

/// Loops that may look at memory in other rows than those of the batch: the bits are the same, and short rows and segments take less.
namespace triage::fused {

/// Loops in which each segment is a row, where nothing belongs to the rows themselves.
struct SegmentsAsRows {
  Loops loops;
  int32_t segments, positions;  // extents of the loops that it was made of
};
std::optional<SegmentsAsRows> segments_as_rows(const Loops& loops);

/// The extent of all elements, where each is computed of those in its place and of numbers alone: then any stretch of memory is a row.
std::optional<int32_t> extent_of_elementwise(const Loops& loops);

}  // namespace triage::fused
