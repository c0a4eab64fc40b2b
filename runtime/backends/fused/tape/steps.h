#pragma once
#include <c10/core/ScalarType.h>

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "runtime/backends/fused/loop_call.h"
#include "runtime/backends/fused/support/lanes.h"
#include "runtime/backends/fused/tape/primitives.h"

/// How the steps of a tape are stored; for the files of this folder.
///
/// Where lanes go through positions, up to rows_at_once rows are a block: what belongs to the row is computed for all
/// rows of the block at once, then each row goes through the loops of the level. Where each lane has a row of its own,
/// a block is one tile, whose rows go through loops side by side.
namespace triage::fused {

struct Steps {
  static constexpr int64_t rows_at_once = 64;        // at most
  static constexpr int64_t chunk = block_positions;  // that a step takes at a time
  static constexpr size_t most_operands = 5;
  using Operands = std::array<int32_t, most_operands>;
  static constexpr Operands none{-1, -1, -1, -1, -1};

  /// Where values are held.
  struct TapeSlot {
    enum class Home : uint8_t {
      number,  // one value for all rows
      cell,    // one value for each row of the block
      chunk,   // a register of the loop over chunks
      row,     // scratch memory for all positions of each row
      shared,  // the same for all rows
      input,   // the caller's, one row after the other
      column,  // the caller's, the same for all rows
      output
    };
    Home home = Home::cell;
    int32_t size = 0;     // bytes of one value
    int32_t number = 0;   // register; index into inputs or outputs
    int32_t extent = -1;  // of those in memory
    int64_t offset = 0;   // numbers and cells: in the cell memory
    int32_t choice = -1;  // index into choices, of a row that may be another slot's
    bool again = false;   // inputs and outputs: later levels go through every row once more
    bool advances() const { return home >= Home::row; }
  };
  struct TapeGuard {
    int32_t condition;  // a cell or a number
    bool wanted;
    auto operator<=>(const TapeGuard&) const = default;
  };
  struct Op {
    MapStep step;
    int32_t out;
    Operands in = none;
    std::vector<int64_t> numbers{};
    // what it does, for those that look for steps to merge
    Opcode opcode = Opcode::literal;
    Type type = Type::non_finite;
    unsigned single = 0;  // a bit for each operand that is one value
    int32_t choice = -1;
    std::vector<TapeGuard> guards{};  // of conditions that the row must meet; else nobody reads the result
    // for the listing
    Type result = Type::non_finite;
    int32_t line = -1;              // LoopValue::line
    WatchedStep watched = nullptr;  // in the place of `step`
    int32_t lanes = -1;             // EdgeReduction::lanes
  };
  /// One of two operands, by a condition that holds for the whole row: nothing has to be computed.
  struct OperandChoice {
    enum class How : uint8_t {
      run,      // the step fills in a single value
      copy,     // the operand's values
      forward,  // who reads the result reads the operand
      through   // the operand was written to where the result belongs
    };
    int32_t condition, out;
    std::array<How, 2> how;  // where the condition does not hold, where it does
    std::array<int32_t, 2> of;
  };
  /// A reduction over whole rows, in the loop over its operand's chunks.
  struct Reduction {
    const JoinSteps* steps;
    int32_t operand, out, total;  // `total`: a cell
    int64_t start;                // bits
    bool wide;                    // the total is a double
    Join join;
    Type type;
    MergedJoin merged = nullptr;  // computes the operand too, and stores it where `stored` says
    Operands in = none;
    int32_t stored = -1;
    int32_t line = -1;   // LoopValue::line
    int32_t merge = -1;  // index into merges
    // Told by the edges of a row, index into Loop::edges; then nothing is joined for it.
    int32_t edges = -1;
    EdgeQuestion question = EdgeQuestion::magnitude;
    std::array<int32_t, 2> bounds{-1, -1};  // numbers
  };
  /// What tells several reductions over the same floats (support/edges.h).
  struct EdgeReduction {
    int32_t values, stored;
    std::array<int32_t, 3> totals;  // cells, as in EdgeTotals
    // The values are watched by the op that makes them, for all rows of a block: index of its lanes. Where these tell
    // that one of the reductions finds something, each row is looked at once more.
    int32_t lanes = -1;
    Watching watching = Watching::edges;
    int32_t line = -1;  // LoopValue::line
  };
  struct Loop {
    int32_t extent;
    std::vector<Op> ops;
    std::vector<EdgeReduction> edges;
    std::vector<Reduction> reductions;
    size_t passes = 0;                // over positions, of edges and reductions
    std::vector<int32_t> moving;      // slots that lie elsewhere for each row
    std::vector<int32_t> registers;   // slots that lie in a register of the loop
    std::vector<int32_t> conditions;  // rows in which these are alike need the same ops, of the same slots
    std::vector<int32_t> choices;     // of its ops
    bool slow = false;                // takes longer than memory
    bool guarded = false;             // some rows need not all ops
    std::optional<TapeGuard> only{};  // rows that meet this need all of it, others nothing
    bool direct = false;              // every row needs all ops, and reads and writes no slot but its own
    bool searches = false;  // only asks whether there is something, of the caller's memory; mostly there is nothing
    size_t first_step = 0;  // of its ops in the listing; the edges and the reductions follow them
  };
  /// A reduction over the segments of an extent: one value for each, or (`whole`) one of the row, segment after
  /// segment.
  struct SegmentReduction {
    Reduction of;
    int32_t extent;
    bool whole, in_lanes;
  };
  /// A value in all positions of `extent`.
  struct Spread {
    enum class From : uint8_t { lanes, positions_of_tile, segments, positions } from;
    int32_t in, out, extent;
    int32_t line = -1;  // LoopValue::line, of the value that needs it
  };
  struct Classified {
    int32_t element, largest, out, extent;
    Type type;
    int32_t line = -1;  // LoopValue::line
  };
  struct Level {
    std::vector<Op> cells;
    std::vector<Classified> classified;
    std::vector<Op> after;  // cells that depend on those
    std::vector<Spread> spreads;
    std::vector<Loop> loops;
    std::vector<SegmentReduction> segments;
    std::optional<TapeGuard> only{};  // rows that do not meet this need none of the loops, and there is nothing else
    // Numbers in the listing: of the first cell, which `classified`, `after` and `spreads` follow; of the first
    // segment.
    size_t first_step = 0, first_segment_step = 0;
    /// Nothing else is done for single rows.
    bool has_only_loops() const { return spreads.empty() && segments.empty(); }
    bool is_one_loop() const { return has_only_loops() && loops.size() == 1; }
  };
  /// Between memory of the caller and slots.
  struct Transfer {
    int32_t slot;    // a cell, a number, or the tile of a row
    int32_t number;  // index into inputs or outputs
    int32_t extent;  // of tiles; -1: one value a row
    MapStep step;    // null: as it is
  };
  struct Positions {  // each value is its position, or the one in its segment
    int32_t out, extent;
    bool in_segment;
  };

  std::vector<RowExtent> extents;
  int64_t width = 1;  // values side by side at a position: 1, or tile_lanes
  std::vector<TapeSlot> slots;
  std::vector<OperandChoice> choices;
  int64_t cell_bytes = 0;
  int32_t registers = 0;
  int32_t lanes = 0;                                            // of edges
  size_t most_ops = 0;                                          // of one loop
  std::vector<std::pair<int64_t, std::vector<char>>> literals;  // offset in the cell memory, bytes
  std::vector<int32_t> zeros;                                   // cells that are zero in each row
  std::vector<std::pair<int32_t, int32_t>> counts;              // numbers that hold how many positions an extent has
  std::vector<Transfer> numbers;                                // inputs that are one number
  std::vector<Op> once;                                         // what is the same for all rows
  std::vector<Spread> spread_once;
  std::vector<Positions> positions;
  std::vector<Transfer> reads, writes;  // of each block
  // Slots: all, those of one home side by side; inputs and outputs, which lie elsewhere for each block; those of whose
  // rows a block must hold as many as it has.
  std::vector<int32_t> by_home, of_caller, held;
  std::vector<Level> levels;
  /// Memory of the caller that comes in while a level computes; level -1: none. A level that is not slow takes longer
  /// by it: there it pays only where the memory has left the caches.
  struct Fetch {
    int32_t level = -1, slot = -1;
    bool slow = false;
    int32_t rows_ahead = 0;
  };
  Fetch fetched_input, fetched_output;  // of the next block; of this one
  // How many steps the listing has, and the numbers of the first of `reads` and of `writes`. What is done once comes
  // first.
  size_t count = 0, first_read_step = 0, first_write_step = 0;

  const TapeSlot& slot(int32_t index) const { return slots[static_cast<size_t>(index)]; }
  TapeSlot& slot(int32_t index) { return slots[static_cast<size_t>(index)]; }
};

/// --- what makes them better; in this order ---
/// What only later levels read was computed again there.
void drop_unread(Steps& steps);
/// Selections by a condition of the row compute nothing but what the row takes.
void find_choices(Steps& steps);
/// Steps that follow each other become one.
void merge_steps(Steps& steps);
/// Reductions over the same floats are told by their edges.
void find_edges(Steps& steps);
void allot_registers(Steps& steps);
void choose_fetching(Steps& steps);
/// What later levels read or write once more should still be in the cache.
void find_read_again(Steps& steps);
void find_searches(Steps& steps);
/// The cells that are read by more than a look at what the largest magnitude of a row tells: those need its value.
std::set<int32_t> read_as_values(const Steps& steps);
/// The levels of which only some rows need anything.
void find_rare_levels(Steps& steps);
/// Values that rows keep lie where an output is written later, but for the one that lies in an input.
void keep_in_outputs(Steps& steps, const std::optional<InPlace>& in_place);
void sort_slots(Steps& steps);
/// As the listing counts steps.
void number_steps(Steps& steps);
/// Whether nobody reads a row of the input once the output has written there.
bool can_be_in_place(const Steps& steps, const InPlace& where);
/// Whether there are no others than these, and such as search.
bool only_searches(const Steps& steps);

}  // namespace triage::fused
