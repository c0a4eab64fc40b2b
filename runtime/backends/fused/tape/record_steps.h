#pragma once
#include <vector>

#include "runtime/backends/fused/tape/primitives.h"

/// Steps on records of flags, of any number of slots; and copies.
namespace triage::fused {

/// What a step on records takes beside its operands.
struct RecordStep {
  int64_t width;                       // slots of a record in memory
  Type code;                           // of operand 2
  bool single_condition, single_code;  // operands 1 and 2 are one value for all records
  std::vector<int64_t> numbers;        // LoopValue::numbers

  std::vector<int64_t> as_numbers() const;  // as MapStep takes them
};
/// Null for opcodes on something else. (`select` is one on records as well; of operand 0 it takes `single_condition`.)
MapStep record_step(Opcode opcode, int64_t width);
/// Values of that many bytes as they are.
MapStep copy_step(int32_t size);

}  // namespace triage::fused
