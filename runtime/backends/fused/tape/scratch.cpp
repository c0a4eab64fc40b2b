#include "runtime/backends/fused/tape/scratch.h"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "runtime/backends/fused/support/tiles.h"

namespace triage::fused {
namespace {

using Home = Steps::Slot::Home;

/// So much memory of a block's rows stays in the second cache beside what else is there.
constexpr int64_t block_bytes = 128 << 10;

/// How many rows of these extents are a block. Rows have the same bits in every block.
int64_t rows_of_block(const Steps& steps, const int64_t* extents) {
  if (steps.width > 1) return steps.width;
  int64_t bytes = 1;
  for (const Steps::Slot& slot : steps.slots)
    if (slot.home == Home::row || (slot.again && (slot.home == Home::input || slot.home == Home::output)))
      bytes += slot.size * extents[slot.extent];
  return std::clamp<int64_t>(block_bytes / bytes, 1, Steps::rows_at_once);
}

/// Of one row (or tile) in slot of home `row`.
int64_t row_bytes(const Steps& steps, const Steps::Slot& slot, const int64_t* extents) {
  return whole_lines(slot.size * extents[slot.extent] * steps.width);
}

// Bytes of scratch memory.
constexpr int64_t kRegister = Steps::chunk * 8, kLanes = lane_count * 8, kTotals = tile_lanes * 8;
constexpr int64_t kTile = segment_block_positions * tile_lanes * 8;

template <class T>
int64_t bytes_of(size_t count) {
  return static_cast<int64_t>(count * sizeof(T));
}
/// What every call keeps in scratch memory, in this order: places, those of the row at hand, active steps, cells, registers, lanes,
/// totals, tile.
std::array<int64_t, 8> fixed_bytes(const Steps& steps) {
  const size_t count = steps.slots.size();
  return {bytes_of<Scratch::Place>(count),
          bytes_of<Scratch::Here>(count),
          bytes_of<const Steps::Op*>(steps.most_ops),
          steps.cell_bytes,
          steps.registers * kRegister,
          kLanes,
          kTotals,
          kTile};
}
/// What a slot takes of it behind these: nothing, where it lies elsewhere.
int64_t slot_bytes(const Steps& steps, const Steps::Slot& slot, const int64_t* extents, int64_t block_rows) {
  const int64_t turns = steps.width > 1 ? 1 : block_rows;
  return slot.home == Home::row      ? row_bytes(steps, slot, extents) * turns
         : slot.home == Home::shared ? row_bytes(steps, slot, extents)
                                     : 0;
}

}  // namespace

Scratch::Scratch(const Steps& steps, const Call& call) : block_rows(rows_of_block(steps, call.extents)) {
  char* memory = call.scratch;
  const auto take = [&](int64_t bytes) { return std::exchange(memory, memory + whole_lines(bytes)); };
  const size_t count = steps.slots.size();
  const auto fixed = fixed_bytes(steps);
  block = new (take(fixed[0])) Place[count];
  at = new (take(fixed[1])) Here[count];
  active = new (take(fixed[2])) const Steps::Op*[steps.most_ops];
  size_t next = 3;
  for (char** const part : {&cells, &registers, &lanes, &totals, &tile}) *part = take(fixed[next++]);
  for (size_t i = 0; i < steps.slots.size(); ++i) {
    const Steps::Slot& slot = steps.slots[i];
    Place& place = block[i];
    place.advance = slot.advances() ? slot.size : 0;
    switch (slot.home) {
      case Home::number:
        place.memory = cells + slot.offset;
        break;
      case Home::cell:
        place.memory = cells + slot.offset;
        place.step = steps.width > 1 ? 0 : slot.size;
        break;
      case Home::chunk:
        place.memory = registers + slot.number * kRegister;
        break;
      case Home::row:
        place.step = row_bytes(steps, slot, call.extents);
        place.memory = take(slot_bytes(steps, slot, call.extents, block_rows));
        break;
      case Home::shared:
        place.memory = take(slot_bytes(steps, slot, call.extents, block_rows));
        break;
      case Home::input:
        place.step = call.in_stride[slot.number];
        break;
      case Home::column:
        place.memory = static_cast<char*>(const_cast<void*>(call.in[slot.number]));
        break;
      case Home::output:
        place.step = slot.size * call.extents[slot.extent];
        break;
    }
    at[i] = {place.memory, place.advance};
  }
}

int64_t Scratch::bytes(const Steps& steps, const int64_t* extents) {
  int64_t sum = 0;
  for (const int64_t part : fixed_bytes(steps)) sum += whole_lines(part);
  const int64_t block_rows = rows_of_block(steps, extents);
  for (const Steps::Slot& slot : steps.slots) sum += slot_bytes(steps, slot, extents, block_rows);
  return sum;
}

}  // namespace triage::fused
