#pragma once
#include <cstdint>

#include "runtime/backends/fused/tape/steps.h"

namespace triage::fused {

/// The scratch memory of one call on one thread, and where the slots lie in it or elsewhere.
struct Scratch {
  /// Of a slot in the first row of the block, and how far it is to the next row and to the next value.
  struct Place {
    char* memory = nullptr;
    int64_t step = 0, advance = 0;
  };
  /// Of a slot in the row at hand.
  struct Here {
    char* memory = nullptr;
    int64_t advance = 0;
    char* at(int64_t position) const { return memory + position * advance; }
  };

  /// In the memory that the call has for it.
  Scratch(const Steps& steps, const Call& call);
  /// How much that is, where the rows have these extents.
  static int64_t bytes(const Steps& steps, const int64_t* extents);

  const int64_t block_rows;  // Rows have the same bits in every block.
  Place* block;              // of each slot
  Here* at;                  // the same
  const Steps::Op** active;  // what the row at hand needs of a loop
  char *cells, *registers, *lanes, *totals, *tile;
};

}  // namespace triage::fused
