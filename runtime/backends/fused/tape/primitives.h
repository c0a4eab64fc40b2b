#pragma once
#include <c10/core/ScalarType.h>

#include <cstdint>

#include "runtime/backends/fused/opcodes.h"

/// The steps of tapes: one opcode, on as many values side by side as there are. They are compiled with the library,
/// once for each instruction set, from the C++ of opcodes.inc.
namespace triage::fused {

/// Computes `n` values of `out`. An operand that is `single` is one value for all of them. `numbers`:
/// LoopValue::numbers.
using MapStep = void (*)(void* out, const void* const* in, int64_t n, const int64_t* numbers);

/// The values of a reduction. Lanes and totals are those of support/lanes.h, which says in which order they are added.
/// `start`: the bits of what it begins with.
struct JoinSteps {
  /// A block of at most block_positions values joins the total.
  void (*block)(void* total, const void* values, int64_t n, int64_t start);
  void (*start)(void* lanes, int64_t count, int64_t start);  // all lanes
  /// Values at i * tile_lanes + lane go into lane `lane`, position after position.
  void (*into_tile)(void* lanes, const void* values, int64_t positions);
  /// Each of `lanes` joins the total beside it.
  void (*totals)(void* totals, const void* lanes, int64_t count);
  /// The total of tile_lanes totals.
  void (*joined_totals)(void* total, void* totals);
  /// Totals as values of the type.
  void (*finish)(void* out, const void* totals, int64_t count);
};
/// Where the operands of a step lie, and how far it is to those of the next row.
struct RowOperands {
  const void* in[5];
  int64_t steps[5];
};
/// Rows that a step goes through one after the other.
struct JoinedRows {
  int64_t count;
  void* total;
  int64_t total_step;
  void* stored;
  int64_t stored_step;
  RowOperands from;
  // What comes into the cache meanwhile: memory of as many values. Null: nothing.
  const char* read_ahead;
  int64_t read_step;
  const char* write_ahead;
  int64_t write_step;
};
/// As JoinSteps::block, of values that are computed from operands; they, or others beside them, go to `stored`.
using MergedJoin = void (*)(const JoinedRows& rows, int64_t n, int64_t start);

/// What the edges of a row of floats (support/edges.h) tell of it. A NaN is below and above every bound.
enum class EdgeQuestion : uint8_t { magnitude, below, above, outside, nan, not_finite };
/// What is looked for while floats are made. Those that take long have steps that look for less: whether all lie
/// between 0 and a bound, and whether all are finite.
enum class Watching : uint8_t { edges, far_edge, finite };
/// The edges of rows that follow each other.
struct EdgeTotals {
  int32_t* highest;
  uint32_t* farthest;
  uint32_t* nearest;
};
struct EdgeSteps {
  void (*start)(const EdgeTotals& totals, int64_t rows);
  /// `n` floats of each row join its edges, and go to `stored` where it is not null. JoinedRows::total is not used.
  void (*join)(const JoinedRows& rows, const EdgeTotals& totals, int64_t n);
  /// Of what watched steps write, whatever the row: memory of edge_lanes_bytes. What comes to `total` are edges that
  /// all of it is within; where it is more than was looked for, such of a NaN.
  void (*start_lanes)(Watching what, void* lanes);
  void (*finish_lanes)(Watching what, const EdgeTotals& total, const void* lanes);
  /// Of each row: for `magnitude` the largest of magnitude_bits, else 0 or 1. `bounds`: the floats of `below`, `above`
  /// and `outside`.
  void (*answer)(EdgeQuestion question, void* out, const EdgeTotals& of, int64_t rows, const void* const* bounds);
};
constexpr int64_t edge_lanes_bytes = 3 * 64;
/// As MapStep, of floats that join the lanes of EdgeSteps while they are in registers.
using WatchedStep = void (*)(void* out, const void* const* in, int64_t n, void* lanes);

/// Of values of one size, in tiles (support/tiles.h). `pitch`: bytes between rows.
struct TileSteps {
  void (*from_rows)(void* tile, const void* rows, int64_t pitch, int64_t positions, int32_t used);
  void (*to_rows)(void* rows, const void* tile, int64_t positions, int32_t used);
  /// Each lane's value at each position.
  void (*fill)(void* tile, const void* lanes, int64_t positions);
};

/// Of one instruction set.
struct Primitives {
  const char* name;
  /// Null where no primitive has these types: such loops are not for this tier. `operand`: the type of the operands
  /// that are no conditions. `single`: a bit for each operand.
  MapStep (*map)(Opcode opcode, Type operand, Type result, unsigned single);
  const JoinSteps* (*join)(Join join, Type type);
  /// Of `merges`, for operands of the type; null where there is none. `merged_join`: of those that join.
  MapStep (*merged)(size_t merge, Type type);
  MergedJoin (*merged_join)(size_t merge, Type type);
  /// What gives the bits of `map` of floats, or of `merged`, and watches them; null where there is none.
  WatchedStep (*watched)(Opcode opcode, unsigned single, Watching what);
  WatchedStep (*watched_merge)(size_t merge, Watching what);
  const EdgeSteps* edges;
  /// From what memory holds to what is computed, and back; null where both are the same.
  MapStep (*load)(at::ScalarType dtype);
  MapStep (*store)(at::ScalarType dtype);
  /// One value of the size at all places.
  MapStep (*fill)(int32_t size);
  /// Whether there is an Inf among values of the type, f32 or f64.
  bool (*has_inf)(const void* values, int64_t n, Type type);
  const TileSteps* (*tiles)(int32_t size);
};

/// Those that tapes are made of (instructions.h).
const Primitives& primitives();

}  // namespace triage::fused
