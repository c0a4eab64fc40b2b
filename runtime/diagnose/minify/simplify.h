#pragma once
#include <vector>

#include "runtime/diagnose/program_run.h"

/// The steps of the minifier that leave the operations as they are, and make the numbers in and around them simpler.
namespace triage::diagnose {

struct ScalarPlace {
  size_t node, operand;
};
/// Operands of operators that are numbers (not sizes or dimensions), except 0 and 1: somebody may wonder about them.
std::vector<ScalarPlace> odd_scalars(const GraphProgram& program);
/// With 1 in those places.
GraphProgram with_ones(const GraphProgram& program, const std::vector<ScalarPlace>& places);

/// With all elements of a constant tensor of the graph set to `number`.
GraphProgram with_filled_constant(const GraphProgram& program, size_t constant, int64_t number);
/// Whether that would change anything.
bool is_filled_with(const at::Tensor& constant, int64_t number);

/// The number 1 stands wherever the graph uses this input. Throws where there is no such graph.
GraphProgram without_input(const GraphProgram& program, size_t input);

/// Makes the values of an input as simple as `fill`; false where they are so already, or simpler.
bool simplify_fill(ProgramInput& input, bool is_flags, ProgramInput::Fill fill);

}  // namespace triage::diagnose
