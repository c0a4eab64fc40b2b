#pragma once
#include <runtime/backends/fused/tape/instructions.h>

#include <string_view>
#include <vector>

namespace triage::fused {

namespace plain {
extern const Primitives steps;  // plain_steps.cpp
}

/// While alive, tapes are made of this set.
struct UseInstructions {
  explicit UseInstructions(const Primitives* set) { use_instructions(set); }
  ~UseInstructions() { use_instructions(nullptr); }
  UseInstructions(const UseInstructions&) = delete;
  UseInstructions& operator=(const UseInstructions&) = delete;
};

inline std::vector<const Primitives*> sets_to_try() {
  std::vector<const Primitives*> sets = instruction_sets();
  sets.push_back(&plain::steps);
  return sets;
}

/// Polynomials round once where there is an instruction for that, as in all code for this processor. (On a processor
/// without it, all code rounds twice.)
inline bool rounds_once(const Primitives& set) {
  const std::string_view name = set.name;
  return instruction_sets().size() == 1 || (name != "baseline" && name != "plain");
}

}  // namespace triage::fused
