#pragma once
#include <cstdint>

#include "runtime/backends/fused/tape/steps.h"

namespace triage::fused {

/// The scratch memory of one call on one thread, and where the slots lie in it or elsewhere.
struct Scratch {
  /// Of a slot in a row of the block: how far it is to the next row and to the next value.
  struct Place {
    char* memory;
    int64_t step, advance;
    char* at(int64_t position) const { return memory + position * advance; }
  };

  /// In the memory that the call has for it.
  Scratch(const Steps& steps, const Call& call);
  /// How much that is, where the rows have these extents.
  static int64_t bytes(const Steps& steps, const int64_t* extents);

  const int64_t block_rows;  // Rows have the same bits in every block.
  Place* block;              // of each slot, in the first row
  Place* here;               // the same, in the row at hand
  const Steps::Op** active;  // what that row needs of a loop
  char *cells, *registers, *lanes, *totals, *tile;
};

}  // namespace triage::fused
