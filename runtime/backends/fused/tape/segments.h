#pragma once
#include "runtime/backends/fused/tape/slot_memory.h"

namespace triage::fused {

/// What is done with all positions of a row at once: reductions over segments, and values that go to more places.
class SegmentSteps {
 public:
  explicit SegmentSteps(const SlotMemory& memory) : memory_(memory), steps_(memory.steps) {}
  void reduce(const Steps::SegmentReduction& one, int64_t row) const;
  void spread(const Steps::Spread& one, int64_t row) const;
  void fill_positions(const Steps::Positions& one) const;

 private:
  /// Of an extent: how many segments, and positions in each; `inner` segments lie side by side between two positions.
  struct SegmentLayout {
    int64_t segments, positions, inner;
    int64_t first_of(int64_t segment) const { return segment / inner * positions * inner + segment % inner; }
  };
  /// The memory of a reduction in the row at hand.
  struct SegmentMemory {
    const char* from;
    char* to;
    int64_t from_size, to_size;
  };
  SegmentLayout parts_of(int32_t extent) const;
  void reduce_tile(const Steps::SegmentReduction& one, const SegmentLayout& parts, const SegmentMemory& ends) const;
  void reduce_by_blocks(const Steps::SegmentReduction& one, const SegmentLayout& parts,
                        const SegmentMemory& ends) const;
  void reduce_in_lanes(const Steps::SegmentReduction& one, const SegmentLayout& parts, const SegmentMemory& ends) const;
  void add_segments(const Steps::SegmentReduction& one, const SegmentLayout& parts, int64_t segment, int64_t used,
                    const SegmentMemory& ends) const;
  template <class T>
  void spread_segments(const SegmentLayout& parts, const T* from, T* to) const;
  template <class T>
  void spread_positions(const SegmentLayout& parts, const T* from, T* to) const;

  const SlotMemory& memory_;
  const Steps& steps_;
};

}  // namespace triage::fused
