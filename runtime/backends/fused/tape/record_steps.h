#pragma once
#include "runtime/backends/fused/tape/primitives.h"

/// Steps on records of flags, of any number of slots; and copies.
namespace triage::fused {

/// Null for other opcodes. `numbers`: how many slots, the Type of operand 2, whether operands 1 and 2 are one value for all
/// records, then LoopValue::numbers.
MapStep record_step(Opcode opcode);
/// Values of that many bytes as they are; and one of them in all places.
MapStep copy_step(int32_t size);
MapStep fill_step(int32_t size);

}  // namespace triage::fused
