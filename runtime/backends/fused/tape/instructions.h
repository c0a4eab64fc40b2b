#pragma once
#include <string>
#include <vector>

#include "runtime/backends/fused/tape/primitives.h"

namespace triage::fused {

/// Those that this processor runs, the best first. TRIAGE_INSTRUCTION_SET=baseline|avx2|avx512 chooses another than the
/// best; what is none of these is said once, and the best is taken.
const std::vector<const Primitives*>& instruction_sets();
/// Tapes that are made from here on are made of these; null: of what was chosen. For tests.
void use_instructions(const Primitives* set);

/// The processor: "x86_64", and what it can do, as /proc/cpuinfo names it.
std::string architecture();
std::vector<std::string> processor_features();

}  // namespace triage::fused
