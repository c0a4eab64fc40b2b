#pragma once
#include <string_view>
#include <vector>

#include "runtime/backends/fused/opcodes.h"

namespace triage::fused {

/// What an operator computes for one element, written as in C: "a * (1 - b * b)". `a`, `b`, ... are its operands 0, 1,
/// ...; functions have the names of opcodes (`reciprocal(1 + exp(-a))`); numbers, `inf` and `nan` have the type of what
/// they meet. Conditions are bool: `c ? x : y`, `&`, `|` and `!` take them. Every step is one opcode, in the type of
/// its operands.
struct Formula {
  struct FormulaStep {
    enum class Kind : uint8_t { operand, number, operation };
    Kind kind = Kind::number;
    size_t operand = 0;
    double number = 0;
    Opcode opcode = Opcode::literal;
    std::vector<size_t> steps = {};  // that it takes
  };
  std::vector<FormulaStep> steps;  // the result last

  std::vector<size_t> operands() const;  // each once, in order
  bool is_slow() const;
  bool is_condition() const;
};

/// Throws GraphError, which says what is wrong and where.
Formula parse_formula(std::string_view text);

}  // namespace triage::fused
