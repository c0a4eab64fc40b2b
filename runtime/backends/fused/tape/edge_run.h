#pragma once
#include "runtime/backends/fused/tape/slot_memory.h"

namespace triage::fused {

/// The edges of rows while a tape runs, and what they tell reductions.
class EdgeRun {
 public:
  explicit EdgeRun(SlotMemory& memory) : memory_(memory) {}

  /// Before the loops of a level; and behind them, where reductions that edges tell get their results in `rows` rows of
  /// the block.
  void start_level(const Steps::Level& level) const;
  void finish_level(const Steps::Level& level, int64_t rows) const;
  char* lanes(int32_t index) const { return memory_.edge_lanes + index * edge_lanes_bytes; }

  /// Of the rows that `prepare` has found.
  void start(const Steps::EdgeReduction& edges, int64_t rows) const;
  void join(const Steps::EdgeReduction& edges, const JoinedRows& rows, int64_t n) const;

  /// Whether all that is asked of them finds nothing in that row.
  bool find_nothing(const Steps::Loop& loop, size_t edges, int64_t row) const;
  /// `rows` rows behind that one get its edges.
  void repeat(const Steps::EdgeReduction& edges, int64_t row, int64_t rows) const;

 private:
  EdgeTotals totals(const Steps::EdgeReduction& edges, int64_t row) const;
  EdgeTotals current(const Steps::EdgeReduction& edges) const;
  void answer(const Steps::Reduction& one, void* out, const EdgeTotals& of, int64_t rows) const;
  void look_again(const Steps::EdgeReduction& edges, int32_t extent, int64_t rows) const;

  SlotMemory& memory_;
};

}  // namespace triage::fused
