#include "runtime/backends/fused/tape/segments.h"

#include <algorithm>

#include "runtime/backends/fused/support/tiles.h"

namespace triage::fused {

void SegmentSteps::fill_positions(const Steps::Positions& one) const {
  auto* to = reinterpret_cast<int64_t*>(memory_.first(one.out).memory);
  const SegmentLayout parts = one.in_segment ? parts_of(one.extent) : SegmentLayout{1, memory_.extent(one.extent), 1};
  const int64_t side_by_side = parts.inner * steps_.width;
  for (int64_t outer = 0; outer < parts.segments / parts.inner; ++outer)
    for (int64_t i = 0; i < parts.positions; ++i, to += side_by_side) std::fill_n(to, side_by_side, i);
}

SegmentSteps::SegmentLayout SegmentSteps::parts_of(int32_t index) const {
  const RowExtent& whole = steps_.extents[static_cast<size_t>(index)];
  if (whole.segments < 0) return {1, memory_.extent(index), 1};
  return {memory_.extent(whole.segments), memory_.extent(whole.positions),
          whole.inner < 0 ? 1 : memory_.extent(whole.inner)};
}

void SegmentSteps::reduce(const Steps::SegmentReduction& one, int64_t row) const {
  const SegmentLayout parts = parts_of(one.extent);
  const SegmentMemory ends{memory_.memory(one.of.operand, row), memory_.memory(one.of.out, row),
                           memory_.slot(one.of.operand).size, memory_.slot(one.of.out).size};
  if (steps_.width > 1)
    reduce_tile(one, parts, ends);
  else if (one.in_lanes)
    reduce_in_lanes(one, parts, ends);
  else
    reduce_by_blocks(one, parts, ends);
}

void SegmentSteps::reduce_tile(const Steps::SegmentReduction& one, const SegmentLayout& parts,
                               const SegmentMemory& ends) const {
  const int64_t from = ends.from_size * tile_lanes, to = ends.to_size * tile_lanes;
  if (one.whole) one.of.steps->start(ends.to, tile_lanes, one.of.start);
  for (int64_t segment = 0; segment < parts.segments; ++segment) {
    char* const out = ends.to + (one.whole ? 0 : segment * to);
    if (!one.whole) one.of.steps->start(out, tile_lanes, one.of.start);
    const char* const first = ends.from + parts.first_of(segment) * from;
    if (parts.inner == 1) {
      one.of.steps->into_tile(out, first, parts.positions);
      continue;
    }
    for (int64_t i = 0; i < parts.positions; ++i) one.of.steps->into_tile(out, first + i * parts.inner * from, 1);
  }
}

void SegmentSteps::reduce_by_blocks(const Steps::SegmentReduction& one, const SegmentLayout& parts,
                                    const SegmentMemory& ends) const {
  for (int64_t segment = 0; segment < parts.segments; ++segment) {
    if (segment == 0 || !one.whole) start_total(steps_, one.of, memory_.totals);
    const char* const first = ends.from + segment * parts.positions * ends.from_size;
    for (int64_t i = 0; i < parts.positions; i += block_positions)
      one.of.steps->block(memory_.totals, first + i * ends.from_size, std::min(block_positions, parts.positions - i),
                          one.of.start);
    if (!one.whole) one.of.steps->finish(ends.to + segment * ends.to_size, memory_.totals, 1);
  }
  if (one.whole) one.of.steps->finish(ends.to, memory_.totals, 1);
}

/// tile_lanes segments at a time, each in a lane of its own.
void SegmentSteps::reduce_in_lanes(const Steps::SegmentReduction& one, const SegmentLayout& parts,
                                   const SegmentMemory& ends) const {
  const int64_t side_by_side =
      steps_.extents[static_cast<size_t>(one.extent)].inner >= 0 ? parts.inner : parts.segments;
  const auto start_totals = [&] {
    for (int64_t lane = 0; lane < tile_lanes; ++lane)
      start_total(steps_, one.of, memory_.totals + lane * total_size(steps_, one.of));
  };
  if (one.whole) start_totals();
  for (int64_t outer = 0; outer < parts.segments / side_by_side; ++outer)
    for (int64_t first = 0; first < side_by_side; first += tile_lanes) {
      const int64_t segment = outer * side_by_side + first, used = std::min(tile_lanes, side_by_side - first);
      if (!one.whole) start_totals();
      add_segments(one, parts, segment, used, ends);
      if (!one.whole) one.of.steps->finish(ends.to + segment * ends.to_size, memory_.totals, used);
    }
  if (one.whole) one.of.steps->joined_totals(ends.to, memory_.totals);
}

void SegmentSteps::add_segments(const Steps::SegmentReduction& one, const SegmentLayout& parts, int64_t segment,
                                int64_t used, const SegmentMemory& ends) const {
  const int64_t size = ends.from_size;
  for (int64_t begun = 0; begun < parts.positions; begun += segment_block_positions) {
    const int64_t n = std::min(segment_block_positions, parts.positions - begun);
    const char* const first = ends.from + (parts.first_of(segment) + begun * parts.inner) * size;
    if (parts.inner == 1)
      primitives()
          .tiles(static_cast<int32_t>(size))
          ->from_rows(memory_.tile, first, parts.positions * size, n, static_cast<int32_t>(used));
    else  // the segments lie side by side
      for (int64_t i = 0; i < n; ++i)
        std::memcpy(memory_.tile + i * tile_lanes * size, first + i * parts.inner * size,
                    static_cast<size_t>(used * size));
    one.of.steps->start(memory_.lanes, tile_lanes, one.of.start);
    one.of.steps->into_tile(memory_.lanes, memory_.tile, n);
    one.of.steps->totals(memory_.totals, memory_.lanes, used);
  }
}

void SegmentSteps::spread(const Steps::Spread& one, int64_t row) const {
  if (one.from == Steps::Spread::From::lanes)
    return primitives()
        .tiles(memory_.slot(one.in).size)
        ->fill(memory_.memory(one.out, row), memory_.memory(one.in, row), memory_.extent(one.extent));
  with_number_of(memory_.slot(one.in).size, [&](auto type) {
    using T = decltype(type);
    const T* const from = reinterpret_cast<const T*>(memory_.memory(one.in, row));
    T* const to = reinterpret_cast<T*>(memory_.memory(one.out, row));
    switch (one.from) {
      case Steps::Spread::From::positions_of_tile:
        for (int64_t i = 0; i < memory_.extent(one.extent); ++i)
          std::fill_n(to + i * steps_.width, steps_.width, from[i]);
        break;
      case Steps::Spread::From::segments:
        spread_segments(parts_of(one.extent), from, to);
        break;
      case Steps::Spread::From::positions:
        spread_positions(parts_of(one.extent), from, to);
        break;
      case Steps::Spread::From::lanes:  // above
        break;
    }
  });
}
/// Each value as often as its segment has positions.
template <class T>
void SegmentSteps::spread_segments(const SegmentLayout& parts, const T* from, T* to) const {
  const int64_t side_by_side = parts.inner * steps_.width;
  for (int64_t outer = 0; outer < parts.segments / parts.inner; ++outer, from += side_by_side)
    for (int64_t i = 0; i < parts.positions; ++i, to += side_by_side) {
      if (side_by_side == 1)
        *to = *from;
      else
        std::copy_n(from, side_by_side, to);
    }
}
/// The values of all positions, for each segment.
template <class T>
void SegmentSteps::spread_positions(const SegmentLayout& parts, const T* from, T* to) const {
  const int64_t width = steps_.width;
  for (int64_t outer = 0; outer < parts.segments / parts.inner; ++outer)
    if (parts.inner == 1) {
      to = std::copy_n(from, parts.positions * width, to);
    } else if (width == 1) {
      for (int64_t i = 0; i < parts.positions; ++i) to = std::fill_n(to, parts.inner, from[i]);
    } else {
      for (int64_t i = 0; i < parts.positions; ++i)
        for (int64_t k = 0; k < parts.inner; ++k) to = std::copy_n(from + i * width, width, to);
    }
}

}  // namespace triage::fused
