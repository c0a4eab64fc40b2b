#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/backends/fused/loop_ir.h"

namespace triage::fused {

/// How a generated function is called: `triage_rows(call, begin, end)` computes rows [begin, end).
struct Call {
  const void* const* in;     // one for each of Loops::inputs
  const int64_t* in_stride;  // bytes from one row to the next
  void* const* out;          // one for each of Loops::outputs, rows without gaps
  const int64_t* extents;    // positions of a row, one for each of Loops::extents
  char* scratch;  // this thread's: Emitted::scratch_rows * 8 bytes for each position of the longest scratch extent
};
using RowsFunction = void (*)(const Call*, int64_t begin, int64_t end);

struct Emitted {
  std::string source;  // C++ that needs no header of LibTorch's
  int64_t scratch_rows = 0;
  std::set<int32_t> scratch_extents;
};

/// An output that is written where an input lies: both are elements of the same sizes and dtype, and once a row of the output
/// is written nobody reads that row of the input.
struct InPlace {
  size_t output, slot;  // index into Loops::outputs and Loops::inputs
};
/// All there are, those first in which rows that a selection leaves as they are need not be written.
std::vector<InPlace> in_place_choices(const Loops& loops);

/// The loops as C++: for each row, passes over its positions as long as they are in the cache. What a later pass needs of an
/// earlier one is computed again where that is cheap, else kept in scratch memory (or read back from an output).
/// With `in_place`, that output's memory is that input's; rows that stay as they are, are not written.
Emitted emit(const Loops& loops, std::optional<InPlace> in_place = {});

/// What goes in front of every generated source (runtime/backends/fused/support).
const std::string& support_source();

}  // namespace triage::fused
