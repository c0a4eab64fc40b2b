#pragma once
#include <c10/util/ArrayRef.h>

#include <vector>

#include "runtime/backends/fused/loop_ir.h"

namespace triage::fused {

class StepTimes;

/// One call of loops: which memory rows lie in.
struct LoopCall {
  const void* const* in;       // one for each of Loops::inputs
  const int64_t* in_stride;    // bytes from one row to the next
  void* const* out;            // one for each of Loops::outputs, rows without gaps
  const int64_t* extents;      // positions of a row, one for each of Loops::extents
  char* scratch;               // this thread's: Tape::scratch_bytes
  StepTimes* times = nullptr;  // null: nobody asks how long steps take
};
/// Bytes of scratch memory, up to the end of their cache line.
constexpr int64_t whole_lines(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/// What the lanes of vectors are given: in long rows the positions, one lane after the other; where rows (or the
/// segments of rows) are short, each lane has a row (a segment) of its own and goes through its positions one by one.
enum class Lanes : uint8_t { positions, segments, rows };
/// Whether segments of the extent go side by side, each in a lane of its own.
inline bool has_segment_lanes(const RowExtent& whole, Lanes lanes) {
  return whole.segments >= 0 && (whole.inner >= 0 || lanes == Lanes::segments);
}
/// By the number of positions of each extent alone, so that a row has the same bits in every batch.
class LaneChoice {
 public:
  explicit LaneChoice(const Loops& loops);
  Lanes operator()(at::ArrayRef<int64_t> extents) const;

 private:
  int64_t longest_;                // that a short row, or segment, is
  std::vector<int32_t> segments_;  // the extents of what segments hold
};

/// An output that is written where an input lies: both are elements of the same sizes and dtype, and once a row of the
/// output is written nobody reads that row of the input.
struct InPlace {
  size_t output, slot;  // index into Loops::outputs and Loops::inputs
};
}  // namespace triage::fused
