#pragma once
#include <cstdint>
#include <cstring>

#include "runtime/backends/fused/tape/steps.h"

namespace triage::fused {

/// One call on one thread: where its slots lie, in the scratch memory that the call has for it or elsewhere.
class SlotMemory {
 public:
  /// Of a slot in a row: how far it is to the next row and to the next value.
  struct SlotPlace {
    char* memory;
    int64_t step, advance;
    char* at(int64_t position) const { return memory + position * advance; }
  };

  SlotMemory(const Steps& steps, const LoopCall& call);
  /// How much scratch memory that takes, where the rows have these extents.
  static int64_t bytes(const Steps& steps, const int64_t* extents);

  const Steps::TapeSlot& slot(int32_t index) const { return steps.slot(index); }
  int64_t extent(int32_t index) const { return call.extents[index]; }
  char* input(int32_t number) const { return static_cast<char*>(const_cast<void*>(call.in[number])); }

  /// A slot in the first row of the block.
  SlotPlace& first(int32_t index) { return first_[index]; }
  const SlotPlace& first(int32_t index) const { return first_[index]; }
  /// A slot in the row that a loop goes through, of which `prepare` says where it is.
  SlotPlace& current(int32_t index) { return current_[index]; }
  const SlotPlace& current(int32_t index) const { return current_[index]; }
  /// Where the slot itself has the row, whatever it selects.
  char* own_memory(int32_t index, int64_t row) const { return first_[index].memory + row * first_[index].step; }
  bool holds(int32_t condition, int64_t row) const { return *own_memory(condition, row) != 0; }
  /// Where a slot has the row: of one that selects, the slot that the row takes.
  char* memory(int32_t index, int64_t row) const { return own_memory(taken(index, row), row); }
  void move_to(int32_t index, int64_t row) {
    const SlotPlace& first = first_[taken(index, row)];
    current_[index] = {first.memory + row * first.step, first.step, first.advance};
  }

  const Steps& steps;
  const LoopCall& call;
  const int64_t block_rows;  // Rows have the same bits in every block.
  const Steps::Op** active;  // what the current row needs of a loop
  char *cells, *registers, *lanes, *totals, *tile, *edge_lanes;

 private:
  int32_t taken(int32_t index, int64_t row) const { return slot(index).choice < 0 ? index : taken_slot(index, row); }
  int32_t taken_slot(int32_t index, int64_t row) const;

  SlotPlace *first_, *current_;
};

/// Sums of real numbers are added up as doubles.
inline int64_t total_size(const Steps& steps, const Steps::Reduction& one) {
  return one.wide ? 8 : steps.slot(one.out).size;
}
/// Sums of blocks are added up as doubles: in one float a lane would lose a row of a million elements. What a sum
/// begins with has the same bits as a double; totals of others have the size of the value.
inline void start_total(const Steps& steps, const Steps::Reduction& one, char* total) {
  std::memcpy(total, &one.start, static_cast<size_t>(total_size(steps, one)));
}

/// Calls `act` with a number of so many bytes.
template <class Act>
void with_number_of(int32_t size, const Act& act) {
  switch (size) {
    case 1:
      return act(uint8_t{});
    case 2:
      return act(uint16_t{});
    case 4:
      return act(uint32_t{});
    default:
      return act(uint64_t{});
  }
}

}  // namespace triage::fused
