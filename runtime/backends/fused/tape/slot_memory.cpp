#include "runtime/backends/fused/tape/slot_memory.h"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "runtime/backends/fused/support/tiles.h"

namespace triage::fused {
namespace {

using Home = Steps::TapeSlot::Home;

/// So much memory of a block's rows stays in the second cache beside what else is there.
constexpr int64_t block_bytes = 128 << 10;

/// How many rows of these extents are a block. Rows have the same bits in every block.
int64_t rows_of_block(const Steps& steps, const int64_t* extents) {
  if (steps.width > 1) return steps.width;
  int64_t bytes = 1;
  for (const int32_t index : steps.held) {
    const Steps::TapeSlot& slot = steps.slot(index);
    if (slot.home != Home::shared) bytes += slot.size * extents[slot.extent];
  }
  return std::clamp<int64_t>(block_bytes / bytes, 1, Steps::rows_at_once);
}

/// Of one row (or tile) in slot of home `row`.
int64_t row_bytes(const Steps& steps, const Steps::TapeSlot& slot, const int64_t* extents) {
  return whole_lines(slot.size * extents[slot.extent] * steps.width);
}

// Bytes of scratch memory.
constexpr int64_t kRegister = Steps::chunk * 8, kLanes = lane_count * 8, kTotals = tile_lanes * 8;
constexpr int64_t kTile = segment_block_positions * tile_lanes * 8;

template <class T>
int64_t bytes_of(size_t count) {
  return static_cast<int64_t>(count * sizeof(T));
}
/// What every call keeps in scratch memory, in this order: places, those of the row at hand, active steps, cells,
/// registers, lanes, totals, tile, lanes of edges.
std::array<int64_t, 9> fixed_bytes(const Steps& steps) {
  const size_t count = steps.slots.size();
  return {bytes_of<SlotMemory::SlotPlace>(count),
          bytes_of<SlotMemory::SlotPlace>(count),
          bytes_of<const Steps::Op*>(steps.most_ops),
          steps.cell_bytes,
          steps.registers * kRegister,
          kLanes,
          kTotals,
          kTile,
          steps.lanes * edge_lanes_bytes};
}
/// What a slot takes of it behind these: nothing, where it lies elsewhere.
int64_t slot_bytes(const Steps& steps, const Steps::TapeSlot& slot, const int64_t* extents, int64_t block_rows) {
  const int64_t turns = steps.width > 1 ? 1 : block_rows;
  return slot.home == Home::row      ? row_bytes(steps, slot, extents) * turns
         : slot.home == Home::shared ? row_bytes(steps, slot, extents)
                                     : 0;
}

}  // namespace

SlotMemory::SlotMemory(const Steps& all_steps, const LoopCall& of_call)
    : steps(all_steps), call(of_call), block_rows(rows_of_block(all_steps, of_call.extents)) {
  char* memory = call.scratch;
  const auto take = [&](int64_t bytes) { return std::exchange(memory, memory + whole_lines(bytes)); };
  const size_t count = steps.slots.size();
  const auto fixed = fixed_bytes(steps);
  first_ = new (take(fixed[0])) SlotPlace[count];
  current_ = new (take(fixed[1])) SlotPlace[count];
  active = new (take(fixed[2])) const Steps::Op*[steps.most_ops];
  size_t next = 3;
  for (char** const part : {&cells, &registers, &lanes, &totals, &tile, &edge_lanes}) *part = take(fixed[next++]);
  for (const int32_t i : steps.by_home) {
    const Steps::TapeSlot& slot = steps.slot(i);
    char* place = nullptr;
    int64_t step = 0;
    switch (slot.home) {
      case Home::number:
        place = cells + slot.offset;
        break;
      case Home::cell:
        place = cells + slot.offset;
        step = steps.width > 1 ? 0 : slot.size;
        break;
      case Home::chunk:
        place = registers + slot.number * kRegister;
        break;
      case Home::row:
        step = row_bytes(steps, slot, call.extents);
        place = take(slot_bytes(steps, slot, call.extents, block_rows));
        break;
      case Home::shared:
        place = take(slot_bytes(steps, slot, call.extents, block_rows));
        break;
      case Home::input:
        step = call.in_stride[slot.number];
        break;
      case Home::column:
        place = static_cast<char*>(const_cast<void*>(call.in[slot.number]));
        break;
      case Home::output:
        step = slot.size * call.extents[slot.extent];
        break;
    }
    const int64_t advance = slot.advances() ? slot.size : 0;
    first_[i] = current_[i] = {place, step, advance};
  }
}

int64_t SlotMemory::bytes(const Steps& steps, const int64_t* extents) {
  int64_t sum = 0;
  for (const int64_t part : fixed_bytes(steps)) sum += whole_lines(part);
  const int64_t block_rows = rows_of_block(steps, extents);
  for (const int32_t index : steps.held) sum += slot_bytes(steps, steps.slot(index), extents, block_rows);
  return sum;
}

/// The slot that has the values of one that selects in that row: it, or another one.
int32_t SlotMemory::taken_slot(int32_t index, int64_t row) const {
  while (slot(index).choice >= 0) {
    const Steps::OperandChoice& one = steps.choices[static_cast<size_t>(slot(index).choice)];
    const bool which = holds(one.condition, row);
    if (one.how[which] != Steps::OperandChoice::How::forward) break;
    index = one.of[which];
  }
  return index;
}

}  // namespace triage::fused
