#pragma once
#include <c10/util/ArrayRef.h>

#include <array>
#include <memory>
#include <vector>

#include "runtime/backends/fused/emit.h"
#include "runtime/backends/fused/tape/primitives.h"

namespace triage::fused {

/// Loops as steps that need no compiler: each is a primitive on up to `chunk` values, which stay in the first cache. A row (of
/// short rows, a tile of them) goes through levels: what belongs to the row, loops over its positions, reductions over
/// segments. A later level needs what an earlier one has reduced. Lanes mean what they mean to `emit`, so the order of
/// additions, and every bit, is that of the kernel.
class Tape {
 public:
  /// Null where some value has no primitive; or where the output cannot be written in place.
  static std::unique_ptr<const Tape> make(const Loops& loops, Lanes lanes, std::optional<InPlace> in_place = {});
  /// What `run` takes of Call::scratch for rows of these extents.
  int64_t scratch_bytes(c10::ArrayRef<int64_t> extents) const;
  void run(const Call& call, int64_t begin, int64_t end) const;

  /// --- how the steps are stored; for the files of this folder ---
  static constexpr int64_t chunk = 1024;  // values
  /// Bytes, up to the end of their cache line.
  static constexpr int64_t whole_lines(int64_t bytes) { return (bytes + 63) / 64 * 64; }

  /// Where values are held.
  struct Slot {
    enum class Home : uint8_t {
      cell,    // of the row: one value, or one for each lane
      chunk,   // a register of the loop over chunks
      row,     // scratch memory for all positions
      input,   // the caller's, one row after the other
      column,  // the caller's, the same for all rows
      output
    };
    Home home = Home::cell;
    int32_t size = 0;     // bytes of one value
    int32_t number = 0;   // register; index into inputs or outputs
    int32_t extent = -1;  // of those in memory
    int64_t offset = 0;   // cells: in the cell memory
    bool advances() const { return home >= Home::row; }
  };
  struct Op {
    MapStep step;
    int32_t out;
    std::array<int32_t, 3> in{-1, -1, -1};
    std::vector<int64_t> numbers;
  };
  /// A reduction over whole rows, in the loop over its operand's chunks.
  struct Reduction {
    const JoinSteps* steps;
    int32_t operand, out;
    int64_t start;  // bits
    bool wide;      // the total is a double
  };
  struct Loop {
    int32_t extent;
    std::vector<Op> ops;
    std::vector<Reduction> reductions;
  };
  /// A reduction over the segments of an extent: one value for each, or (`whole`) one of the row, segment after segment.
  struct SegmentReduction {
    Reduction of;
    int32_t extent;
    bool whole, in_lanes;
  };
  /// A value in all positions of `extent`.
  struct Spread {
    enum class From : uint8_t { lanes, positions_of_tile, segments, positions } from;
    int32_t in, out, extent;
  };
  struct Classified {
    int32_t element, largest, out, extent;
    Type type;
  };
  struct Level {
    std::vector<Op> cells;
    std::vector<Classified> classified;
    std::vector<Op> after;  // cells that depend on those
    std::vector<Spread> spreads;
    std::vector<Loop> loops;
    std::vector<SegmentReduction> segments;
  };
  /// Between memory of the caller and slots.
  struct Transfer {
    int32_t slot;    // a cell, or the tile of a row
    int32_t number;  // index into inputs or outputs
    int32_t extent;  // of tiles; -1: one value a row
    MapStep step;    // null: as it is
  };
  struct Positions {  // each value is its position, or the one in its segment
    int32_t out, extent;
    bool in_segment;
  };

 private:
  /// Whether output `output` may lie in the memory of input `input`, of as many elements of the same size.
  bool can_overwrite(size_t input, size_t output) const;

  friend class TapeBuilder;
  friend class TapeRun;

  std::vector<Extent> extents_;
  int64_t width_ = 1;  // rows at a time
  std::vector<Slot> slots_;
  std::vector<int32_t> moving_;  // slots in memory of the caller that is another one for each row
  int64_t cell_bytes_ = 0;
  int32_t registers_ = 0;
  int64_t most_reductions_ = 0;                                  // of one loop
  std::vector<std::pair<int64_t, std::vector<char>>> literals_;  // offset in the cell memory, bytes
  std::vector<std::pair<int32_t, int32_t>> counts_;              // cells that hold how many positions an extent has
  std::vector<Transfer> numbers_;                                // inputs that are one number
  std::vector<Op> once_;                                         // what is the same for all rows
  std::vector<Spread> spread_once_;
  std::vector<Positions> positions_;
  std::vector<Transfer> reads_, writes_;  // of each row or tile
  std::vector<Level> levels_;
};

}  // namespace triage::fused
