#pragma once
#include <string>

#include "runtime/backends/fused/loop_ir.h"

namespace triage::fused {

/// How a generated function is called: `triage_rows(call, begin, end)` computes rows [begin, end).
struct Call {
  const void* const* in;     // one for each of Loops::inputs
  const int64_t* in_stride;  // bytes from one row to the next
  void* const* out;          // one for each of Loops::outputs, rows without gaps
  const int64_t* extents;    // positions of a row, one for each of Loops::extents
  char* scratch;             // this thread's: Emitted::scratch_rows * 8 bytes for each position of the longest extent
};
using RowsFunction = void (*)(const Call*, int64_t begin, int64_t end);

struct Emitted {
  std::string source;  // C++ that needs no header of LibTorch's
  int64_t scratch_rows = 0;
};

/// The loops as C++: for each row, passes over its positions as long as they are in the cache. What a later pass needs of an
/// earlier one is computed again where that is cheap, else kept in scratch memory (or read back from an output).
Emitted emit(const Loops& loops);

/// What goes in front of every generated source (runtime/backends/fused/support).
const std::string& support_source();

}  // namespace triage::fused
