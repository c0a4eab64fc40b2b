#pragma once
#include <c10/util/SmallVector.h>

#include <optional>

#include "runtime/backends/fused/loop_call.h"
#include "runtime/backends/fused/parts/call_layout.h"

/// Loops that may look at memory in other rows than those of the batch: the bits are the same, and short rows and
/// segments take less.
namespace triage::fused {

/// Loops in which each segment is a row, where nothing belongs to the rows themselves.
struct SegmentsAsRows {
  Loops loops;
  int32_t segments, positions;  // extents of the loops that it was made of
};
std::optional<SegmentsAsRows> segments_as_rows(const Loops& loops);

/// The extent of all elements, where each is computed of those in its place and of numbers alone: then any stretch of
/// memory is a row.
std::optional<int32_t> extent_of_elementwise(const Loops& loops);

/// The rows that loops go through in a call.
struct RowLayout {
  Lanes lanes;
  int64_t count, block;                  // `block`: so many lie evenly apart
  c10::SmallVector<int64_t, 8> stride;   // bytes from one to the next
  c10::SmallVector<int64_t, 4> extents;  // how many positions
  bool flat = false;                     // `count` elements, of which any stretch is a row
};

/// Which rows those are.
class RowViews {
 public:
  /// `whole`: rows are those of the batch, whatever else could be.
  RowViews(const Loops& loops, bool whole);
  /// The loops that run.
  const Loops& loops() const { return by_segments_ ? by_segments_->loops : loops_; }
  Lanes lanes_of_batch(at::ArrayRef<int64_t> extents) const { return choose_lanes_(extents); }
  /// For the sizes of the capture.
  Lanes captured() const { return captured_; }
  RowLayout rows_of(const CallLayout& layout) const;

 private:
  Lanes lanes_of(at::ArrayRef<int64_t> extents) const;

  const Loops& loops_;
  const std::optional<SegmentsAsRows> by_segments_;
  const std::optional<int32_t> elementwise_;  // the extent of all elements
  const LaneChoice choose_lanes_;
  Lanes captured_;
};

}  // namespace triage::fused
